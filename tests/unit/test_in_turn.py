"""Small requests that the main loop answers, beside what it leaves to threads."""

import contextlib
import math
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from gunicorn.config import Config
from gunicorn.workers.gthread import TConn

from app.api.shared_thread import SuspendedExchange
from app.coroutines import elsewhere, until
from app.errors import QueueFull
from app.serving.job import tell
from app.workers.patient import SENDING_S
from app.workers.quiet_socket import QuietSocket
from app.workers.turn import Turn
from tests.support.clocks import standing_clock
from tests.support.in_turn import PATIENCE_S, Promise, looping, post
from tests.support.jobs import job

HERE = threading.get_ident()
PIECES = 4


class Waiting:
    """A route that waits for the promise of its body's name, and then gives that."""

    def __init__(self, loop):
        self.promises = {}
        self.resumed = []
        self.wake = None
        loop.app.routes["/wait"] = self._answer

    async def _answer(self, body, environ, wake):
        self.wake = wake
        await until(self.promises.setdefault(body, Promise()))
        self.resumed.append(body)
        return body

    def keep(self, *bodies):
        """Keep promises, told by another thread."""
        for body in bodies:
            self.promises[body].told = True
        with ThreadPoolExecutor(1) as pool:
            pool.submit(self.wake, [self.promises[body] for body in bodies]).result()


@pytest.fixture(name="loop")
def _loop():
    """A worker; /echo gives the body back."""

    async def echo(body, environ, wake):
        return body

    with looping() as loop:
        loop.app.routes["/echo"] = echo
        yield loop


@pytest.fixture(name="waiting")
def _waiting(loop):
    """What /wait waits for."""
    return Waiting(loop)


@pytest.fixture(name="kept")
def _kept(loop):
    """A client of a second request: the main loop knows its connection."""
    client = loop.connect()
    assert client.ask("/echo", b"first") == (200, b"first")
    loop.handed_on.clear()
    loop.app.seen.clear()
    return client


def wait_begun(loop, waiting, client, body=b"job", *headers):
    """Have a client's request wait."""
    client.send(post("/wait", body, *headers))
    loop.until(lambda: body in waiting.promises)


def the_conn(loop):
    """The server's end of the only connection that waits for a request."""
    (conn,) = loop.worker.keepalived_conns
    return conn


def is_registered(loop, conn):
    return conn.sock.fileno() in loop.worker.poller.get_map()


def test_a_small_post_takes_no_thread(loop, kept):
    """The main loop answers it, and its connection stays with the poller meanwhile."""
    conn = the_conn(loop)
    states = []

    async def look(body, environ, wake):
        states.append((is_registered(loop, conn), len(loop.worker.keepalived_conns)))
        return body

    loop.app.routes["/look"] = look
    for body in (b"second", b"third"):
        assert kept.ask("/look", body) == (200, body)
        assert list(loop.worker.keepalived_conns) == [conn]
        assert is_registered(loop, conn)
    assert states == [(True, 0)] * 2
    assert loop.app.seen == [("/look", HERE)] * 2
    assert loop.handed_on == []
    assert loop.worker.nr_conns == 1


def test_an_idle_connection_ends_at_its_time(loop, kept):
    """The time for the next request begins anew with each answer, and then ends it."""
    conn = the_conn(loop)
    conn.timeout = 0
    kept.ask("/echo", b"second")
    loop.worker.murder_keepalived()
    assert conn.timeout > time.monotonic()
    assert loop.worker.nr_conns == 1
    conn.timeout = 0
    loop.worker.murder_keepalived()
    assert loop.worker.nr_conns == 0
    assert kept.has_ended()


def test_who_waits_holds_up_nobody(loop, waiting, kept):
    """While requests wait for their jobs, more than there are threads, others go on."""
    others = [loop.connect() for _ in range(4)]
    for place, client in enumerate(others):
        wait_begun(loop, waiting, client, b"%d" % place)
    assert kept.ask("/echo", b"hello") == (200, b"hello")
    assert kept.ask("/echo", b"again") == (200, b"again")
    assert [client.has_nothing() for client in others] == [True] * 4
    waiting.keep(b"2", b"0")
    assert others[2].receive() == (200, b"2")
    assert others[0].receive() == (200, b"0")
    assert waiting.resumed == [b"2", b"0"]
    waiting.keep(b"1", b"3")
    assert others[3].receive() == (200, b"3")
    assert others[1].receive() == (200, b"1")
    assert {thread for _, thread in loop.app.seen} == {HERE}


def test_a_job_told_twice_is_answered_once(loop, waiting, kept):
    """Who is told of a job that nobody waits for any more does nothing."""
    wait_begun(loop, waiting, kept)
    waiting.keep(b"job")
    waiting.keep(b"job")
    assert kept.receive() == (200, b"job")
    assert kept.ask("/echo", b"next") == (200, b"next")


@pytest.mark.parametrize("how", ["kept", "new"])
def test_what_comes_before_the_answer_waits(loop, waiting, kept, how):
    """A request sent behind one that waits is answered after it, without a spin."""
    client = kept if how == "kept" else loop.connect()
    wait_begun(loop, waiting, client)
    client.send(post("/echo", b"second"))
    loop.step()
    assert loop.is_idle()
    client.send(post("/echo", b"third"))
    assert loop.is_idle()
    waiting.keep(b"job")
    answers = [client.receive() for _ in range(3)]
    assert answers == [(200, b"job"), (200, b"second"), (200, b"third")]
    assert client.ask("/echo", b"fourth") == (200, b"fourth")


@pytest.mark.parametrize("how", ["kept", "new"])
def test_requests_in_one_packet_are_answered_in_order(loop, waiting, kept, how):
    """The second of two requests that came together waits for the first's answer."""
    client = kept if how == "kept" else loop.connect()
    client.send(post("/wait", b"job") + post("/echo", b"second"))
    loop.until(lambda: waiting.promises)
    loop.step()
    assert loop.is_idle()
    assert client.has_nothing()
    waiting.keep(b"job")
    assert [client.receive() for _ in range(2)] == [(200, b"job"), (200, b"second")]
    assert client.ask("/echo", b"third") == (200, b"third")


def test_a_long_row_of_requests_in_one_packet_is_answered(loop, kept):
    """However many requests come at once, each has its answer, and no call nests."""
    count = 1000
    kept.send(b"".join(post("/echo", b"%d" % n) for n in range(count)))
    assert [kept.receive() for _ in range(count)] == [
        (200, b"%d" % n) for n in range(count)
    ]
    assert loop.handed_on == []


def test_a_row_of_requests_lets_others_go_first(loop, kept):
    """Between two requests of one packet the main loop sees to who else is there."""
    other = loop.connect()
    assert other.ask("/echo", b"first") == (200, b"first")
    order = []

    async def note(body, environ, wake):
        order.append(body)
        return body

    loop.app.routes["/note"] = note
    kept.send(b"".join(post("/note", b"row") for _ in range(150)))
    other.send(post("/note", b"other"))
    for _ in range(150):
        kept.receive()
    assert other.receive() == (200, b"other")
    assert order.index(b"other") < 75


@pytest.mark.parametrize("then", ["sends", "hangs up"])
@pytest.mark.parametrize("kind", ["close", "pipelined"])
def test_an_event_that_comes_with_the_answer_is_harmless(
    loop, waiting, kept, kind, then
):
    """A client may send or hang up in the same round of events as its job is told."""
    headers = ["Connection: close"] if kind == "close" else []
    behind = post("/echo", b"second") if kind == "pipelined" else b""
    kept.send(post("/wait", b"job", *headers) + behind)
    loop.until(lambda: waiting.promises)
    # The kernel tells first of what it has told before.
    assert loop.is_idle()
    waiting.keep(b"job")
    if then == "sends":
        kept.send(post("/echo", b"third"))
    else:
        kept.sock.close()
    loop.step()
    assert loop.connect().ask("/echo", b"other") == (200, b"other")
    if then == "sends":
        assert kept.receive() == (200, b"job")
    if (kind, then) == ("pipelined", "sends"):
        assert kept.receive() == (200, b"second")
        assert kept.receive() == (200, b"third")


def test_idle_connections_leave_room_for_others():
    """Of more connections than may be idle, those answered are closed, though busy."""
    with looping(worker_connections=5) as loop:
        waiting = Waiting(loop)
        clients = [loop.connect() for _ in range(5)]
        for place, client in enumerate(clients):
            wait_begun(loop, waiting, client, b"%d" % place)
        for place, client in enumerate(clients):
            waiting.keep(b"%d" % place)
            assert client.receive() == (200, b"%d" % place)
        loop.until(lambda: loop.worker.nr_conns == 3)
        assert len(loop.worker.keepalived_conns) == 3


def test_a_client_that_hangs_up_costs_nobody_else(loop, waiting, kept):
    """Its end does not keep the main loop busy, and its connection is given back."""
    other = loop.connect()
    assert other.ask("/echo", b"hello") == (200, b"hello")
    wait_begun(loop, waiting, kept)
    kept.sock.close()
    loop.step()
    assert loop.is_idle()
    assert other.ask("/echo", b"hello") == (200, b"hello")
    assert loop.worker.nr_conns == 2
    waiting.keep(b"job")
    loop.until(lambda: loop.worker.nr_conns == 1)
    assert other.ask("/echo", b"hello") == (200, b"hello")


@pytest.fixture(name="clock")
def _clock(monkeypatch):
    """The time that the deadlines of jobs are compared with."""
    return standing_clock(monkeypatch, "app.workers.in_turn", "app.workers.sending")


def test_a_job_that_is_late_is_gone_on_with(loop, waiting, clock, monkeypatch):
    """Each is resumed at its deadline, not before; nobody's wait ends later."""
    waits_s = []
    select = loop.worker.poller.select
    clients = {}
    for name, deadline in ((b"a", 105), (b"c", math.inf), (b"b", 105.5)):
        waiting.promises[name] = Promise(deadline)
        clients[name] = loop.connect()
        clients[name].send(post("/wait", name))
    loop.until(lambda: len(loop.worker._turns) == 3)
    while not loop.is_idle():
        loop.step()
    monkeypatch.setattr(
        loop.worker.poller, "select", lambda wait_s: waits_s.append(wait_s) or select(0)
    )
    for now, resumed in ((104.5, b""), (105, b"a"), (105.25, b"a"), (106, b"ab")):
        clock.now = now
        loop.worker.wait_for_and_dispatch_events(1000)
        assert b"".join(waiting.resumed) == resumed
    assert waits_s == [0.5, 0.5, 0.25, 1000]
    loop.worker.wait_for_and_dispatch_events(1)
    assert waits_s[-1] == 1
    assert clients[b"a"].receive() == (200, b"a")
    assert clients[b"b"].receive() == (200, b"b")
    waiting.keep(b"c")
    assert clients[b"c"].receive() == (200, b"c")


def test_a_function_is_called_elsewhere(loop, kept):
    """It runs in a thread, where its result or its error is gone on with."""
    threads = []

    def call(body):
        threads.append(threading.get_ident())
        return 1 // int(body)

    async def route(body, environ, wake):
        try:
            result = await elsewhere(lambda: call(body))
        except ZeroDivisionError:
            result = "no number"
        threads.append(threading.get_ident())
        return str(result).encode()

    loop.app.routes["/call"] = route
    assert kept.ask("/call", b"1") == (200, b"1")
    assert kept.ask("/call", b"0") == (200, b"no number")
    assert threads[1::2] == threads[::2]
    assert HERE not in threads


class FakeRunner:
    """Answers jobs in `submit`, or keeps them; `threads` are those of the calls."""

    def __init__(self, *, runs_in_submit, full=False):
        self.runs_in_submit = runs_in_submit
        self.full = full
        self.jobs = []
        self.threads = []

    def submit(self, job):
        self.threads.append(threading.get_ident())
        if self.full:
            raise QueueFull("no room")
        self.jobs.append(job)
        if self.runs_in_submit:
            self.answer()

    def answer(self):
        for each in self.jobs:
            assert each.add(0, {"output": each.inputs["input"] + 1}, 1, 1.0)
        tell(self.jobs)


def exchanging(loop, runner):
    """A route that has a runner answer with its body's number and one."""

    async def route(body, environ, wake):
        exchange = SuspendedExchange(environ, wake)
        # None of these may be waited for until it is late.
        made = job(float(body), deadline=time.monotonic() + 1000)
        made.wake = exchange.wake
        try:
            await exchange.submit(runner, made)
        except QueueFull:
            return b"full"
        answer = await exchange.answered(made)
        quick = await exchange.work(True, threading.get_ident)
        slow = await exchange.work(False, threading.get_ident)
        assert (quick == HERE, slow == HERE) == (True, False)
        return b"%d" % answer.outputs["output"][0, 0]

    loop.app.routes["/job"] = route


@pytest.mark.parametrize("full", [False, True])
def test_a_model_that_runs_in_submit_runs_elsewhere(loop, kept, full):
    """A job that is told before anybody could wait for it is not waited for."""
    runner = FakeRunner(runs_in_submit=True, full=full)
    exchanging(loop, runner)
    assert kept.ask("/job", b"41") == (200, b"full" if full else b"42")
    assert HERE not in runner.threads
    assert loop.worker._turns == {}


def test_a_job_is_submitted_here_and_answered_by_a_thread(loop, kept):
    """A batch's thread tells the main loop, which goes on with each of its jobs."""
    runner = FakeRunner(runs_in_submit=False)
    exchanging(loop, runner)
    other = loop.connect()
    kept.send(post("/job", b"1"))
    other.send(post("/job", b"2"))
    loop.until(lambda: len(runner.jobs) == 2)
    batch = threading.Thread(target=runner.answer)
    batch.start()
    assert kept.receive() == (200, b"2")
    assert other.receive() == (200, b"3")
    batch.join(PATIENCE_S)
    assert runner.threads == [HERE, HERE]


def large_answers(loop):
    """Have /large answer with more than the kernel takes; gives its bytes."""
    data = np.arange(4 << 20, dtype=np.uint32).tobytes()
    size = len(data) // PIECES

    async def large(body, environ, wake):
        return [data[at : at + size] for at in range(0, len(data), size)]

    loop.app.routes["/large"] = large
    return data


def take_nothing(loop, client):
    """Have a client's large answer begin, of which it takes nothing yet."""
    before = len(loop.worker._sending._left)
    client.send(post("/large"))
    loop.until(lambda: len(loop.worker._sending._left) == before + 1)


def test_a_large_answer_waits_for_its_client_without_a_thread(loop, kept):
    """More clients than threads take nothing; the others go on, and all get all."""
    data = large_answers(loop)
    slow = [kept, loop.connect(), loop.connect()]
    for client in slow:
        take_nothing(loop, client)
    other = loop.connect()
    for _ in range(10):
        assert other.ask("/echo", b"hello") == (200, b"hello")
    loop.handed_on.clear()
    body = bytes(100_000)
    assert other.ask("/echo", body) == (200, body)
    assert len(loop.handed_on) == 1
    for client in slow:
        assert client.receive() == (200, data)
        assert client.ask("/echo", b"next") == (200, b"next")


@pytest.mark.parametrize("is_seen_late", [False, True])
def test_a_request_behind_a_large_answer_waits_for_its_end(loop, kept, is_seen_late):
    """Its bytes are not looked at, nor do they keep the answer from being sent."""
    data = large_answers(loop)
    conn = the_conn(loop)
    take_nothing(loop, kept)
    kept.send(post("/echo", b"behind"))
    if is_seen_late:
        # It was among the events of the round in which the answer began.
        loop.worker.on_client_socket_readable(conn, conn.sock)
    assert kept.receive() == (200, data)
    assert kept.receive() == (200, b"behind")


def test_who_takes_nothing_for_too_long_is_given_up(loop, kept, clock):
    """Its time begins anew with all that it takes, and then its connection ends."""
    large_answers(loop)
    take_nothing(loop, kept)
    for _ in range(3):
        clock.now += SENDING_S - 1
        left = loop.worker._sending._left[the_sent(loop)]
        loop.until(lambda left=left: has_taken(loop, kept, left))
        loop.worker.murder_keepalived()
        assert loop.worker.nr_conns == 1
    clock.now += SENDING_S
    loop.worker.murder_keepalived()
    assert loop.worker.nr_conns == 0
    assert loop.worker._sending._left == {}


def the_sent(loop):
    """The only connection that an answer is being sent on."""
    (conn,) = loop.worker._sending._left
    return conn


def has_taken(loop, client, left):
    """Let a client take some bytes; say whether the server has sent more."""
    client.sock.recv(1 << 18)
    return loop.worker._sending._left[the_sent(loop)] != left


def test_nothing_overtakes_what_could_not_be_sent():
    """Once something is left, all that follows is, though there may be room again."""
    client, server = socket.socketpair()
    with client, QuietSocket.of(server) as sock:
        turn = Turn(SimpleNamespace(sock=sock), None)
        first = bytes(8 << 20)
        turn.sendall(first)
        sent = len(first) - len(turn.left)
        assert 0 < sent < len(first)
        assert len(client.recv(sent, socket.MSG_WAITALL)) == sent
        turn.sendall(b"second")
        assert len(turn.left) == len(first) - sent + len(b"second")
        assert turn.left.endswith(b"second")


def test_a_client_that_leaves_a_large_answer_is_closed(loop, kept):
    """What could not be sent ends the connection, and nothing else."""

    async def large(body, environ, wake):
        return bytes(32 << 20)

    loop.app.routes["/large"] = large
    kept.send(post("/large"))
    loop.until(lambda: loop.app.seen)
    kept.sock.close()
    loop.until(lambda: loop.worker.nr_conns == 0)
    assert loop.connect().ask("/echo", b"hello") == (200, b"hello")


LENGTH = "Content-Length: 4"
PROXY = b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n"


def raw(*lines, body=b"body"):
    return "\r\n".join(["POST /x HTTP/1.1", *lines, "", ""]).encode() + body


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (post("/x", bytes(100_000)), 200),
        (raw("Transfer-Encoding: chunked", body=b"4\r\nbody\r\n0\r\n\r\n"), 200),
        (raw("transfer-encoding : identity", LENGTH), 400),
        (raw(LENGTH, "EXPECT: 100-continue", "Connection: close"), 100),
        (raw(LENGTH, "Upgrade: h2c"), 200),
        (raw(LENGTH, LENGTH), 400),
        (raw(LENGTH, "A: b", "content-length: 4"), 400),
        (raw("Content-Length: +4"), 400),
        (raw(body=b""), 200),
        (b"GET /x HTTP/1.1\r\n" + LENGTH.encode() + b"\r\n\r\nbody", 200),
        (b"PUT /x HTTP/1.1\r\n\r\n", 200),
        (b"\r\nPUT /x HTTP/1.1\r\n\r\n", 200),
        (b"\r\n\r\n" + raw(LENGTH), 400),
        (PROXY + raw(LENGTH), 400),
    ],
    ids=[
        *("large", "chunks", "two lengths", "expect", "upgrade", "length twice"),
        *("length again", "no number", "no length", "GET", "PUT", "CRLF", "CRLFs"),
        "PROXY",
    ],
)
def test_what_is_no_small_post_goes_to_a_thread(loop, kept, sent, status):
    """What may keep the main loop waiting, or is not plainly a small POST, is left."""
    conn = the_conn(loop)
    kept.send(sent)
    if status == 100:
        loop.until(lambda: not kept.has_nothing())
    else:
        assert kept.receive()[0] == status
    assert loop.handed_on == [conn]
    assert HERE not in [thread for _, thread in loop.app.seen]


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /x HTTP/1.1\r\n\r\n",
        b"GET /x HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
        b"OPTIONS /x HTTP/1.1\r\n\r\n",
    ],
)
def test_what_only_asks_waits_for_no_thread_of_the_others(loop, kept, sent):
    """While all of them are kept, a GET is answered in a thread of another kind."""

    def name():
        return threading.current_thread().name.encode()

    async def ask(body, environ, wake):
        return await elsewhere(name)

    loop.app.routes["/x"] = ask
    with all_threads_kept(loop):
        kept.send(sent)
        status, thread = kept.receive()
        assert (status, thread.partition(b"_")[0]) == (200, b"quick")
        assert kept.ask("/echo", b"next") == (200, b"next")


@contextlib.contextmanager
def all_threads_kept(loop):
    """No thread but the quick ones has time for anybody."""
    free = threading.Event()
    for _ in range(2 * loop.worker.cfg.threads):
        loop.worker.tpool.submit(free.wait, PATIENCE_S)
    try:
        yield
    finally:
        free.set()


@pytest.mark.parametrize("begin", [b"", b"POST /echo HT"])
def test_a_new_connection_waits_for_no_thread(loop, begin):
    """Though its first request comes late, or in pieces, no thread looks for it."""
    with all_threads_kept(loop):
        client = loop.connect()
        client.send(begin)
        waits = (loop.worker.keepalived_conns, loop.worker.pending_conns)
        loop.until(lambda: waits[bool(begin)])
        client.send(post("/echo", b"late")[len(begin) :])
        assert client.receive() == (200, b"late")
    assert loop.handed_on == []


@pytest.mark.parametrize("how", ["kept", "new"])
def test_a_small_body_may_come_later(loop, kept, how):
    """A POST whose body comes in packets of their own is answered on the main loop."""
    whole = post("/echo", b"body")
    client = kept if how == "kept" else loop.connect()
    for begin, end in ((0, -4), (-4, -1)):
        client.send(whole[begin:end])
        loop.until(lambda: loop.worker._begun)
        while not loop.is_idle():
            loop.step()
        assert client.has_nothing()
    client.send(whole[-1:])
    assert client.receive() == (200, b"body")
    assert client.ask("/echo", b"next") == (200, b"next")
    assert loop.app.seen == [("/echo", HERE)] * 2
    assert loop.worker._begun == {}


def test_a_small_body_that_does_not_come_is_given_up(loop, kept, clock):
    """When its time is over, and not before, the application meets what is there."""
    errors = []

    async def give_up(environ, start_response, wake):
        try:
            environ["wsgi.input"].read()
        except TimeoutError as error:
            errors.append(error)
        start_response("408 REQUEST TIMEOUT", [("Content-Length", "0")])
        return [b""]

    loop.app.on_shared_thread = give_up
    kept.send(post("/echo", b"body")[:-1])
    loop.until(lambda: loop.worker._begun)
    clock.now += PATIENCE_S - 1
    loop.step()
    assert kept.has_nothing()
    clock.now += 1
    assert kept.receive() == (408, b"")
    assert kept.has_ended()
    assert len(errors) == 1
    assert loop.handed_on == []


def test_a_body_that_is_cut_off_goes_to_a_thread(loop, kept):
    """Who closes in the middle of a small body is left to who says so."""
    conn = the_conn(loop)
    kept.send(post("/echo", b"body")[:-1])
    loop.until(lambda: loop.worker._begun)
    kept.sock.shutdown(socket.SHUT_WR)
    loop.until(lambda: loop.handed_on)
    assert loop.handed_on == [conn]
    assert loop.worker._begun == {}


def test_what_a_thread_began_waits_without_it(loop, waiting):
    """More requests wait for jobs than there are threads, though threads read them."""
    clients = [loop.connect() for _ in range(5)]
    for place, client in enumerate(clients):
        client.send(
            b"POST /wait HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"1\r\n%d\r\n0\r\n\r\n" % place
        )
    loop.until(lambda: len(loop.worker._turns) == 5)
    assert HERE not in [thread for _, thread in loop.app.seen]
    waiting.keep(b"4", b"3", b"2", b"1", b"0")
    answers = [client.receive() for client in clients]
    assert answers == [(200, b"%d" % place) for place in range(5)]
    assert clients[0].ask("/echo", b"next") == (200, b"next")


def test_a_connection_is_given_back_on_the_main_loop(loop, kept):
    """What the poller holds is changed by no thread, whoever sent the answer."""
    ends = []
    end = loop.worker._end
    loop.worker._end = lambda *args: ends.append(threading.get_ident()) or end(*args)
    assert kept.ask("/large", bytes(100_000)) == (200, b"no route")
    assert kept.ask("/echo", b"next") == (200, b"next")
    assert ends == [HERE, HERE]
    assert loop.app.seen[0][1] != HERE


@pytest.mark.parametrize(("sent", "after_s"), [(b"", 75), (b"POST", 30)])
def test_a_header_that_stops_is_waited_for_half_a_minute(monkeypatch, sent, after_s):
    """Who has begun a header has less time than one who has sent nothing."""
    with looping(keepalive=75) as loop:
        loop.connect().send(sent)
        loop.until(lambda: loop.worker.pending_conns or loop.worker.keepalived_conns)
        for ahead_s, left in ((after_s - 5, 1), (after_s + 1, 0)):
            fake = clock_ahead(ahead_s)
            monkeypatch.setattr("gunicorn.workers.gthread.time", fake)
            loop.worker.murder_keepalived()
            loop.worker.murder_pending()
            assert loop.worker.nr_conns == left


def clock_ahead(seconds):
    """A clock that shows the time in so many seconds."""
    return SimpleNamespace(monotonic=lambda: time.monotonic() + seconds)


def answer_unread(loop):
    """Have requests answered whose bodies nobody reads."""

    async def answer(environ, start_response, wake):
        start_response("404 NOT FOUND", [("Content-Length", "4")])
        return [b"none"]

    loop.app.on_shared_thread = answer


@pytest.mark.parametrize("trailer", ["no trailer", "Host: x"])
def test_a_request_has_one_answer_though_its_body_breaks_behind_it(
    loop, kept, caplog, trailer
):
    """A body that nobody wanted, and that can't be read, ends the connection."""
    answer_unread(loop)
    body = f"4\r\nbody\r\n0\r\n{trailer}\r\n\r\n".encode()
    kept.send(raw("Transfer-Encoding: chunked", body=body))
    assert kept.receive() == (404, b"none")
    assert kept.has_ended()
    assert caplog.text == ""


def test_what_nobody_read_is_thrown_away(loop, kept):
    """A connection is kept behind a body of less than 64 KiB that nobody read."""
    answer_unread(loop)
    for size in (65_535, 65_536):
        assert kept.ask("/x", bytes(size)) == (404, b"none")
    assert kept.has_ended()


def test_an_empty_line_between_requests_is_passed_over(loop, kept):
    """A line end behind a body, as some clients send it, spoils no request."""
    kept.send(post("/echo", b"first") + b"\r\n" + post("/echo", b"second"))
    assert [kept.receive() for _ in range(2)] == [(200, b"first"), (200, b"second")]


def test_half_a_header_waits_without_a_thread(loop, kept):
    """A request whose header comes in two packets is answered on the main loop."""
    whole = post("/echo", b"body")
    kept.send(whole[:20])
    loop.until(lambda: loop.worker.pending_conns)
    assert loop.is_idle()
    kept.send(whole[20:])
    assert kept.receive() == (200, b"body")
    assert loop.app.seen == [("/echo", HERE)]


@pytest.mark.parametrize("proxy_protocol", ["v1", "auto"])
def test_a_proxys_line_is_read_by_a_thread(proxy_protocol):
    """What the line says of the client is parsed where a wait for it hurts nobody."""
    with looping(proxy_protocol=proxy_protocol) as loop:
        client = loop.connect()
        client.send(PROXY + raw(LENGTH))
        assert client.receive() == (200, b"no route")


@pytest.mark.parametrize(
    "settings",
    [
        {"certfile": __file__},
        {"http2_cleartext": "prior-knowledge", "http_protocols": "h2,h1"},
    ],
    ids=["TLS", "HTTP/2"],
)
def test_a_connection_that_begins_with_more_than_a_request_is_left(loop, settings):
    """The main loop does not so much as set up what begins with a handshake."""
    config = Config()
    for name, value in settings.items():
        config.set(name, value)
    begun = []
    loop.worker.handle = lambda conn: begun.append((conn, conn.initialized)) or False
    client = loop.connect()
    client.send(post("/echo", b"body"))
    sock, address = loop.worker.sockets[0].accept()
    conn = TConn(config, sock, address, loop.address)
    loop.worker.nr_conns += 1
    loop.worker.enqueue_req(conn)
    loop.until(lambda: begun)
    assert begun == [(conn, False)]
    assert loop.app.seen == []


@pytest.mark.parametrize("resumed", [False, True])
def test_a_bug_is_a_500_and_the_end_of_its_connection(
    loop, waiting, kept, caplog, resumed
):
    """An error that nobody catches is told as JSON and logged; others go on."""

    async def broken(body, environ, wake):
        if resumed:
            await elsewhere(threading.get_ident)
        raise KeyError("/secret/path")

    loop.app.routes["/broken"] = broken
    other = loop.connect()
    wait_begun(loop, waiting, other)
    status, body = kept.ask("/broken")
    assert status == 500
    assert body == b'{"error": "internal error; the server\'s log has more"}'
    assert "/secret/path" in caplog.text
    assert kept.has_ended()
    waiting.keep(b"job")
    assert other.receive() == (200, b"job")
    assert loop.worker.nr_conns == 1


@pytest.mark.parametrize("resumed", [False, True])
def test_a_broken_connection_is_closed_quietly(loop, waiting, kept, caplog, resumed):
    """An OSError of a request's own ends the connection, without a word."""

    async def broken(body, environ, wake):
        if resumed:
            await elsewhere(threading.get_ident)
        raise ConnectionResetError("gone")

    loop.app.routes["/broken"] = broken
    other = loop.connect()
    wait_begun(loop, waiting, other)
    kept.send(post("/broken"))
    assert kept.has_ended()
    waiting.keep(b"job")
    assert other.receive() == (200, b"job")
    assert loop.worker.nr_conns == 1
    assert caplog.text == ""


def test_a_header_with_an_error_is_answered_here(loop, kept):
    """What is no HTTP though it looks like a small POST is told so, and closed."""
    kept.send(raw(LENGTH, "no header"))
    assert kept.receive()[0] == 400
    assert kept.has_ended()
    assert loop.worker.nr_conns == 0


@pytest.mark.parametrize("header", ["Connection: close", "A: b"])
def test_a_stopping_worker_ends_what_it_has_begun(loop, waiting, kept, header):
    """Requests under way are answered, and so are new ones, each its client's last."""
    other = loop.connect()
    assert other.ask("/echo", b"first") == (200, b"first")
    wait_begun(loop, waiting, kept, b"job", header)
    loop.worker.alive = False
    loop.app.seen.clear()
    assert other.ask("/echo", b"last") == (200, b"last")
    assert other.has_ended()
    waiting.keep(b"job")
    assert kept.receive() == (200, b"job")
    if header == "A: b":
        # It was not told to close, and may have a request on the way.
        assert loop.worker.nr_conns == 1
        assert kept.ask("/echo", b"last") == (200, b"last")
    assert kept.has_ended()
    assert loop.worker.nr_conns == 0


def test_a_stopping_worker_answers_what_came_with_the_request_before(
    loop, waiting, kept
):
    """Who was told that it may send again is answered, though it has done so before."""
    kept.send(post("/wait", b"job") + post("/echo", b"second"))
    loop.until(lambda: waiting.promises)
    loop.worker.alive = False
    waiting.keep(b"job")
    assert kept.receive() == (200, b"job")
    assert kept.receive() == (200, b"second")
    assert kept.has_ended()


def test_who_connects_as_the_worker_is_told_to_stop_is_answered(loop):
    """A connection that nobody has seen when the loop ends is taken in, the last."""
    client = loop.connect()
    loop.worker.handle_exit(signal.SIGTERM, None)
    end_loop(loop)
    assert loop.worker.nr_conns == 1
    assert client.ask("/echo", b"in time") == (200, b"in time")
    assert loop.worker.sockets == []
    with pytest.raises(ConnectionRefusedError):
        loop.connect()


def test_who_waits_behind_one_that_is_answered_at_once_is_taken_in(loop):
    """A connection that comes and goes in one step is not the last of the backlog."""
    first, second = loop.connect(), loop.connect()
    for client in (first, second):
        client.send(post("/echo", b"body", "Connection: close"))
    loop.worker.handle_exit(signal.SIGTERM, None)
    end_loop(loop)
    assert first.receive() == (200, b"body")
    assert second.receive() == (200, b"body")
    assert loop.worker.nr_conns == 0


def test_who_goes_on_connecting_does_not_delay_the_stop():
    """No more are taken in than may wait in the kernel at a time."""
    with looping(backlog=3) as loop:
        accept = loop.worker.accept
        accepted = []

        def accept_and_connect(listener):
            accepted.append(listener)
            loop.connect()
            accept(listener)

        loop.worker.accept = accept_and_connect
        loop.connect()
        loop.worker.handle_exit(signal.SIGTERM, None)
        end_loop(loop)
        assert len(accepted) == 3


def end_loop(loop):
    """Do as Gunicorn does, which goes on only while there are connections."""
    assert not loop.worker.alive
    loop.worker.set_accept_enabled(False)


def test_a_worker_to_be_replaced_ends_its_connections():
    """The last request before a restart is answered, and the connection is closed."""

    async def echo(body, environ, wake):
        return body

    with looping(max_requests=2) as loop:
        loop.app.routes["/echo"] = echo
        client = loop.connect()
        assert client.ask("/echo", b"1") == (200, b"1")
        assert client.ask("/echo", b"2") == (200, b"2")
        assert client.has_ended()
        assert not loop.worker.alive
