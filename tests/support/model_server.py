"""A model server on a thread, which answers what the test says."""

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


@dataclass
class Asked:
    """A request; `connection` counts from 0."""

    method: str
    path: str
    body: bytes
    connection: int

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Says:
    """An answer; with `hangs_up` the connection closes behind it, unannounced."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    hangs_up: bool = False

    @classmethod
    def value(cls, value: Any, status: int = 200, **more: Any) -> "Says":
        return cls(status, json.dumps(value).encode(), **more)


# None: close the connection without a byte.
Answer = Callable[[Asked], Says | None]


class ModelServer:
    """Runs while it is entered; `asked` is what came in."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.asked: list[Asked] = []
        self.connections = 0
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{self._http.server_port}"

    @contextlib.contextmanager
    def running(self) -> Iterator["ModelServer"]:
        thread = Thread(target=self._http.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield self
        finally:
            self._http.shutdown()
            thread.join()
            self._http.server_close()

    def sent(self, path: str) -> list[Asked]:
        return [asked for asked in self.asked if asked.path.endswith(path)]


def _handler(server: ModelServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self) -> None:
            super().setup()
            self.number = server.connections
            server.connections += 1

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            asked = Asked(self.command, self.path, body, self.number)
            server.asked.append(asked)
            says = server.answer(asked)
            if says is None:
                self.close_connection = True
                return
            self.send_response(says.status)
            for name, value in says.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(says.body)))
            self.end_headers()
            self.wfile.write(says.body)
            self.close_connection = self.close_connection or says.hangs_up

        do_GET = do_POST

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return Handler


def tensor(dtype: str, *sizes: int) -> dict[str, Any]:
    """A tensor in TensorFlow Serving's metadata, its first size the batch's."""
    dims = [{"size": str(size), "name": ""} for size in sizes]
    shape = {"dim": dims, "unknown_rank": False}
    return {"dtype": dtype, "tensor_shape": shape, "name": "any:0"}


def metadata(**signatures: tuple[Mapping[str, Any], Mapping[str, Any]]) -> Says:
    """An answer of /metadata with these signatures: inputs and outputs by name."""
    definitions = {
        name: {
            "inputs": inputs,
            "outputs": outputs,
            "method_name": "tensorflow/serving/predict",
        }
        for name, (inputs, outputs) in signatures.items()
    }
    return Says.value(
        {
            "model_spec": {"name": "m", "signature_name": "", "version": "1"},
            "metadata": {"signature_def": {"signature_def": definitions}},
        }
    )
