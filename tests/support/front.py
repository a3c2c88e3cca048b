"""The event-loop worker under a real Gunicorn, and raw connections to it."""

import contextlib
import itertools
import json
import os
import re
import resource
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testing.server import ROOT, free_port, wait_until
from tests.support.tls import client_context

CONFIG = ROOT / "tests" / "support" / "front_config.py"
# Seconds for anything that should happen at once, on a busy machine.
PATIENCE_S = 20
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] (\d{3}) ?[^\r\n]*")


def get(target: str, *headers: str, version: str = "1.1") -> bytes:
    """Return a whole GET."""
    return request("GET", target, *headers, version=version)


def post(target: str, body: bytes = b"", *headers: str) -> bytes:
    """Return a whole POST with a body of known length."""
    return request("POST", target, f"Content-Length: {len(body)}", *headers) + body


def chunked(target: str, *parts: bytes, headers: Sequence[str] = ()) -> bytes:
    """Return a whole POST whose body comes in these chunks."""
    begin = request("POST", target, "Transfer-Encoding: chunked", *headers)
    return begin + b"".join(map(chunk, (*parts, b"")))


def chunk(part: bytes) -> bytes:
    """Return one chunk; an empty one ends the body."""
    return b"%x\r\n%b\r\n" % (len(part), part)


def request(method: str, target: str, *headers: str, version: str = "1.1") -> bytes:
    """Return a request's head."""
    lines = [f"{method} {target} HTTP/{version}", "Host: front", *headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


@dataclass
class Response:
    """A response; header names are in lower case, repeated values stand in a list."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes = b""

    def header(self, name: str) -> str:
        """Return the value of a header that comes once, or an empty string."""
        values = [value for each, value in self.headers if each == name.lower()]
        assert len(values) <= 1, self.headers
        return values[0] if values else ""

    def closes(self) -> bool:
        return self.header("connection").lower() == "close"

    def json(self) -> Any:
        return json.loads(self.body)

    def error(self) -> str:
        """Return the text of a JSON error."""
        assert self.header("content-type").startswith("application/json")
        found = self.json()
        assert list(found) == ["error"]
        text = found["error"]
        assert isinstance(text, str)
        assert 0 < len(text) <= 200
        return text


class Wire:
    """A client's connection, on which bytes are sent as they are."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        # Whether the server has said that it closes.
        self.closes = False
        self._data = b""

    def send(self, *parts: bytes) -> None:
        self.sock.sendall(b"".join(parts))

    def ask(self, sent: bytes) -> Response:
        self.send(sent)
        return self.response(is_head=sent.startswith(b"HEAD "))

    def response(self, *, is_head: bool = False) -> Response:
        """Return the next response; one without a length ends with the connection."""
        line, *lines = self.head()[:-4].split(b"\r\n")
        found = _STATUS_LINE.fullmatch(line)
        assert found, line
        pairs = [each.decode("latin-1").split(":", 1) for each in lines]
        headers = [(name.lower(), value.strip()) for name, value in pairs]
        response = Response(int(found[1]), headers)
        status = response.status
        if not is_head and status not in (204, 304) and status >= 200:
            response.body = self._body(response)
        self.closes = self.closes or response.closes()
        return response

    def head(self) -> bytes:
        """Return a response's head as it came."""
        return self._until(b"\r\n\r\n")

    def _body(self, response: Response) -> bytes:
        length = response.header("content-length")
        if response.header("transfer-encoding"):
            assert response.header("transfer-encoding") == "chunked"
            assert not length
            return b"".join(iter(self._chunk, b""))
        return self.exactly(int(length)) if length else self.rest()

    def _chunk(self) -> bytes:
        size = int(self._until(b"\r\n"), 16)
        data = self.exactly(size + 2)
        assert data.endswith(b"\r\n")
        return data[:-2]

    def _until(self, end: bytes) -> bytes:
        """Return the bytes up to and with an end."""
        while end not in self._data:
            assert self._receive(), f"the connection ended behind {self._data!r}"
        place = self._data.index(end) + len(end)
        found, self._data = self._data[:place], self._data[place:]
        return found

    def begins(self) -> bytes:
        """Return the first bytes of a response, which stay; the others are not read."""
        self.take(len(b"HTTP/1.1 200") - len(self._data))
        return self._data

    def received(self) -> bytes:
        """Return what has been received and not yet returned."""
        return self._data

    def take(self, size: int) -> None:
        """Receive so many bytes, and keep them for the next response."""
        self._data += self._read(size)

    def exactly(self, size: int) -> bytes:
        """Return so many bytes."""
        data, self._data = self._data[:size], self._data[size:]
        return data + self._read(size - len(data))

    def _read(self, size: int) -> bytes:
        parts = []
        while size:
            part = self.sock.recv(min(size, 1 << 20))
            assert part, f"the connection ended, {size} bytes too early"
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def responses(self, count: int) -> list[Response]:
        return [self.response() for _ in range(count)]

    def all_responses(self) -> list[Response]:
        """Return the responses up to the end of the connection."""
        found = []
        while self._data or self._receive():
            found.append(self.response())
        return found

    def rest(self) -> bytes:
        """Return all bytes up to the end of the connection, and close this side."""
        while self._receive():
            pass
        self.close()
        data, self._data = self._data, b""
        return data

    def _receive(self) -> bool:
        more = self.sock.recv(1 << 20)
        self._data += more
        return bool(more)

    def has_ended(self) -> bool:
        """Wait for the end of the connection; return whether no byte came before."""
        return self.rest() == b""

    def is_open(self) -> bool:
        """Return whether the server has not closed the connection by now."""
        self.sock.setblocking(False)
        try:
            return self.sock.recv(1, socket.MSG_PEEK) != b""
        except BlockingIOError:
            return True
        finally:
            self.sock.settimeout(PATIENCE_S)

    def is_broken(self) -> bool:
        """Wait for the end; return whether it came, cleanly or not, with no byte."""
        try:
            return self.has_ended()
        except ConnectionError:
            return True

    def send_what_fits(self, data: bytes, limit: int) -> int:
        """Send again and again until nothing is taken; return the number of bytes."""
        sent = 0
        # Were it taken later than this on a busy machine, less would be counted.
        self.sock.settimeout(0.5)
        with contextlib.suppress(TimeoutError):
            while sent < limit:
                sent += self.sock.send(data)
        self.sock.settimeout(PATIENCE_S)
        return sent

    def shake_hands(self) -> None:
        """Speak TLS from now on."""
        self.sock = client_context().wrap_socket(self.sock)

    def end_sending(self) -> None:
        self.sock.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Close at once, and have the server see a reset."""
        self.sock.setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0" + b"\0" * 4
        )
        self.sock.close()

    def close(self) -> None:
        self.sock.close()


@dataclass
class Front:
    """A Gunicorn that runs; `log` is where it writes what it has to say."""

    process: subprocess.Popen[bytes]
    address: Any
    log: Path
    tls: bool = False
    _wires: list[Wire] = field(default_factory=list)

    @property
    def port(self) -> int:
        port = self.address[1]
        assert isinstance(port, int)
        return port

    def connect(
        self,
        sent: bytes = b"",
        *,
        tls: bool | None = None,
        receive_buffer: int = 0,
        address: Any = None,
    ) -> Wire:
        """Open a connection, and send something on it."""
        address = address or self.address
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        sock = socket.socket(family)
        wire = Wire(sock)
        self._wires.append(wire)
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.settimeout(PATIENCE_S)
        sock.connect(address)
        if family == socket.AF_INET:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.tls if tls is None else tls:
            wire.shake_hands()
        wire.send(sent)
        return wire

    def ask(self, sent: bytes) -> Response:
        """Return the response to a request on a connection of its own."""
        wire = self.connect(sent)
        try:
            return wire.response(is_head=sent.startswith(b"HEAD "))
        finally:
            wire.close()

    def found(self, target: str) -> Any:
        """Return the JSON that a GET is answered with."""
        response = self.ask(get(target, "Connection: close"))
        assert response.status == 200
        return response.json()

    def wait_for(self, target: str, value: Any = 1) -> None:
        """Wait until a GET is answered with a value."""
        wait_until(lambda: self.found(target) == value, PATIENCE_S, self.log.read_text)

    def hold(self, name: str, count: int = 1) -> list[Wire]:
        """Have requests wait until the name is released."""
        wires = [self.connect(get(f"/hold?name={name}")) for _ in range(count)]
        self.wait_for(f"/waits?name={name}", count)
        return wires

    def block(self, name: str, seconds: float) -> Wire:
        """Block the event loop, and return the connection that it answers then."""
        wire = self.connect(get(f"/block?s={seconds}&name={name}"))
        until(lambda: f"blocking {name}\n" in self.log.read_text())
        return wire

    def release(self, name: str) -> None:
        assert self.ask(get(f"/release?name={name}")).status == 200

    def workers(self) -> list[int]:
        """Return the process ids of the workers that live now."""
        pid = self.process.pid
        with contextlib.suppress(FileNotFoundError):
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
            return [int(child) for child in children.split()]
        return []

    def worker(self) -> int:
        (pid,) = self.workers()
        return pid

    def connections(self) -> int:
        """Return how many TCP connections the only worker holds."""
        sockets = _sockets(self.worker())
        return sum(row.inode in sockets for row in self._rows() if not row.listens)

    def backlog(self) -> int:
        """Return how many connections wait in the kernel to be accepted."""
        return sum(row.queued for row in self._rows() if row.listens)

    def _rows(self) -> list["_Row"]:
        rows = map(_Row, Path("/proc/net/tcp").read_text().splitlines()[1:])
        return [row for row in rows if row.port == self.port]

    def threads(self) -> int:
        """Return how many threads the only worker has."""
        status = Path(f"/proc/{self.worker()}/status").read_text()
        return int(status.partition("\nThreads:")[2].split()[0])

    def cpu_s(self) -> float:
        """Return the CPU time that the only worker has used."""
        stat = Path(f"/proc/{self.worker()}/stat").read_text().rpartition(")")[2]
        user, system = stat.split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def limit_descriptors(self, spare: int) -> None:
        """Let the only worker open so many more descriptors."""
        pid = self.worker()
        used = {int(path.name) for path in Path(f"/proc/{pid}/fd").iterdir()}
        free = (number for number in itertools.count() if number not in used)
        limit = next(itertools.islice(free, spare, None))
        _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, hard))

    def is_refusing(self) -> bool:
        """Return whether the port is closed."""
        with socket.socket() as sock:
            return sock.connect_ex(self.address) != 0

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def wait(self, timeout_s: float = PATIENCE_S) -> int:
        """Return the exit status; clients close after a response that says close."""
        for wire in self._wires:
            if wire.closes:
                wire.close()
        return self.process.wait(timeout_s)

    def stop(self, timeout_s: float = PATIENCE_S) -> int:
        """Send SIGTERM; return the exit status."""
        self.signal(signal.SIGTERM)
        return self.wait(timeout_s)

    def begin(self) -> None:
        """Wait for the first response."""
        wait_until(self._answers, PATIENCE_S, self.log.read_text)

    def _answers(self) -> bool:
        if self.process.poll() is not None:
            raise AssertionError(f"the server ended: {self.log.read_text()}")
        with contextlib.suppress(OSError, ssl.SSLError):
            return bool(self.ask(get("/calls", "Connection: close")).status)
        return False

    def close_wires(self) -> None:
        while self._wires:
            self._wires.pop().close()


class _Row:
    """One socket of /proc/net/tcp."""

    def __init__(self, line: str) -> None:
        words = line.split()
        self.port = int(words[1].partition(":")[2], 16)
        self.listens = words[3] == "0A"
        self.queued = int(words[4].partition(":")[2], 16)
        self.inode = words[9]


def _sockets(pid: int) -> set[str]:
    """Return the inodes of a process's sockets."""
    links = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            links.append(os.readlink(link))
    pattern = re.compile(r"socket:\[(\d+)\]")
    return {found[1] for link in links if (found := pattern.fullmatch(link))}


@contextlib.contextmanager
def front(
    *args: str,
    app: str = "app",
    address: Any = None,
    tls: bool = False,
    timeouts: Mapping[str, float] | None = None,
    ready: bool = True,
    clean: bool = True,
) -> Iterator[Front]:
    """Run `gunicorn tests.support.calls_app:<app> *args` with the event-loop worker.

    It listens at `address`, a path or a pair, else at a free port. `timeouts` are some
    of the arguments of `HttpServer`. A server that is not stopped by the test
    must stop with status 0 and, if `clean`, without a traceback in its log.
    """
    address = address or ("127.0.0.1", free_port())
    bind = f"unix:{address}" if isinstance(address, str) else "{}:{}".format(*address)
    gunicorn = str(Path(sys.executable).parent / "gunicorn")
    target = f"tests.support.calls_app:{app}"
    command = [gunicorn, target, f"--config={CONFIG}", f"--bind={bind}", *args]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    environ["FRONT_TIMEOUTS"] = json.dumps(dict(timeouts or {}))
    if tls:
        environ["FRONT_TLS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, cwd=ROOT, env=environ, stdout=output, stderr=output
            )
        running = Front(process, address, log, tls)
        try:
            if ready:
                running.begin()
            yield running
            running.close_wires()
            if process.poll() is None:
                assert running.stop() == 0
            if clean:
                assert_clean(log)
        except BaseException as error:
            error.add_note(f"The server's log ends:\n{log.read_text()[-4000:]}")
            raise
        finally:
            running.close_wires()
            if process.poll() is None:
                _kill(running)


def _kill(running: Front) -> None:
    """End the processes; a worker may not live on."""
    for pid in (*running.workers(), running.process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    running.process.wait()


def assert_clean(log: Path) -> None:
    """Hold that a log has no traceback and no warning of asyncio's."""
    text = log.read_text()
    for sign in ("Traceback", "never retrieved", "never awaited", "was destroyed"):
        assert sign not in text


def until(condition: Callable[[], Any], describe: Callable[[], Any] = str) -> None:
    wait_until(condition, PATIENCE_S, describe)
