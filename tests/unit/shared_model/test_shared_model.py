"""A web worker's mirror and a model process, both in this process."""

import itertools
import queue
import socket
import threading
import time
from contextlib import ExitStack, closing, suppress
from types import SimpleNamespace

import pytest

from app import run_dir
from app.errors import (
    Abandoned,
    BasketError,
    Late,
    ModelFailed,
    ModelProcessGone,
    NotReady,
    QueueFull,
    SettingsError,
    Stopping,
    TooLarge,
)
from app.repository.catalog import Catalog
from app.repository.health import Health
from app.repository.loader import Loader
from app.repository.opener import Opener
from app.repository.quarantine import Quarantine
from app.repository.routing import Target
from app.repository.served import ServedModel, State
from app.settings import Settings
from app.settings.image_config import ImageClass, ImageConfig
from app.settings.model_config import ModelConfig
from app.shared_model import failures, snapshot
from app.shared_model.channel import GONE, Channel
from app.shared_model.connection import Connection
from app.shared_model.frames import Frame, encode
from app.shared_model.load import Load
from app.shared_model.mirror import Mirror
from app.shared_model.process import ModelProcess
from app.shared_model.published import PublishedCatalog
from app.shared_model.remote_runner import RemoteRunner
from testing.server import wait_until
from tests.support.engines import Blocks, Echo, Raises
from tests.support.jobs import Notes, answered, job

PATIENCE_S = 10


class Machine:
    """A folder of models, model processes that serve it, and web workers."""

    def __init__(self, folder, **settings):
        self.models = folder / "models"
        self.models.mkdir()
        self.settings = Settings(model_dir=self.models, max_batch_size=4, **settings)
        self.engines = {}
        self.mirrors = []
        self.path = str(folder / "socket")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen()

    def add(self, name, version=1, engine=None, toml=""):
        """Make a version's folder, and say which engine it gets."""
        (self.models / name / str(version)).mkdir(parents=True)
        (self.models / name / "basket.toml").write_text(toml)
        self.engines[name, str(version)] = engine or Echo()
        return self.engines[name, str(version)]

    def process(self):
        """A model process, whose loader looks only when told."""
        self.catalog = PublishedCatalog(self.settings)
        opener = Opener(lambda *_: Notes(), self._open)
        self.loader = Loader(
            self.settings,
            self.catalog,
            opener,
            run_dir.Notes(),
            Quarantine(run_dir.Notes()),
            scan_every_s=None,
        )
        limit_s = self.settings.request_timeout_ms / 1000
        health = Health(self.catalog, limit_s, run_dir.Notes())
        process = ModelProcess(self.catalog, self.loader, self.listener, health)
        process.start()
        return process

    def worker(self):
        """A web worker's catalog and mirror, once these have what there is."""
        catalog, mirror = self.follower()
        assert mirror.wait(PATIENCE_S)
        return catalog, mirror

    def follower(self, processes=1):
        """A web worker's catalog and mirror, which have nothing yet."""
        catalog = Catalog(self.settings.default_model)
        paths = [self.path] * processes
        mirror = Mirror(self.settings, catalog, lambda *_: Notes(), paths)
        mirror.start()
        self.mirrors.append(mirror)
        return catalog, mirror

    def _open(self, folder, settings):
        del settings
        engine = self.engines[folder.parent.name, folder.name]
        if isinstance(engine, BaseException):
            raise engine
        return engine


@pytest.fixture(name="machine")
def _machine(tmp_path):
    machine = Machine(tmp_path)
    yield machine
    for engine in machine.engines.values():
        if isinstance(engine, Echo):
            engine.let_go()
    for mirror in machine.mirrors:
        mirror.close(0)
    machine.listener.close()


def _send(catalog, *values, target=None, **rest):
    with catalog.lease(target or Target()) as model:
        one = job(*values, **rest)
        model.runner.submit(one)
        return one


def _in_thread(work):
    """Start it; a function that waits for what it returns or raises."""
    outcome = SimpleNamespace()

    def run():
        try:
            outcome.value = work()
        except BaseException as error:
            outcome.value = error

    thread = threading.Thread(target=run)
    thread.start()

    def wait():
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
        return outcome.value

    return wait


class End:
    """One end of a connection of which the test says each word."""

    def __init__(self, connection):
        self.connection = connection
        connection.sock.settimeout(PATIENCE_S)
        self._received = []

    def send(self, meta, tensors=None):
        self.connection.send(encode(Frame(meta, tensors or {})))

    def receive(self):
        """The next frame."""
        if not self._received:
            self._received = self.connection.receive()
        return self._received.pop(0)

    def close(self):
        self.connection.close()


class Scripted:
    """A model process of which the test says what it does, word by word."""

    def __init__(self, machine):
        self._listener = machine.listener
        self.load = Load()

    def show(self):
        """Take a web worker's connection, and show it a model m."""
        self.accept()
        self.say(1, {"1": self.version("echo")})

    def accept(self):
        """Take a web worker's connection."""
        self._listener.settimeout(PATIENCE_S)
        sock, _ = self._listener.accept()
        self.end = End(Connection(sock))
        assert "watch" in self.end.receive().meta
        socket.send_fds(sock, [b"."], [self.load.fd])

    @staticmethod
    def version(platform):
        """A version that serves, as web workers are shown it."""
        config = ModelConfig(Settings())
        served = ServedModel("m", 1, platform, Echo().signatures, config, None, None)
        described = snapshot.of_served(served, Settings())
        return {"state": "AVAILABLE", "error": "", "served": described}

    @staticmethod
    def model(versions):
        """A model with these versions, as web workers are shown it."""
        return {
            **{"problem": "", "settled": True, "unloaded": False},
            **{"labels": {}, "traffic": {}, "versions": versions},
        }

    def say(self, revision, versions):
        """Show the web worker these versions of m, and wait until it has them."""
        models = {"m": self.model(versions)}
        self.end.send({"revision": revision, "models": models})
        assert self.end.receive().meta == {"seen": revision}

    @classmethod
    def followed(cls, machine):
        """One that shows its model m; the web worker's catalog and mirror, and it."""
        catalog, mirror = machine.follower()
        process = cls(machine)
        process.show()
        return catalog, mirror, process

    def asked(self):
        """The next job."""
        frame = self.end.receive()
        assert frame.meta["predict"] == ["m", 1]
        return frame

    def answer(self, *frames):
        """Give jobs their rows back, in one piece."""
        buffers = []
        for frame in frames:
            meta = {
                "number": frame.meta["number"],
                "batch_rows": 1,
                "times": (1.0, 2.0),
            }
            buffers += encode(Frame(meta, {"output": frame.tensors["input"]}))
        self.end.connection.send(buffers)

    def die(self):
        self.end.close()


def test_rows_go_to_the_model_process_and_back(machine):
    """A job submitted to a web worker is run by the engine of the model process."""
    engine = machine.add("m")
    machine.process()
    catalog, _ = machine.worker()
    answer = _send(catalog, 1.0, 2.0).wait()
    assert answer.outputs["output"].tolist() == [[1.0], [2.0]]
    assert answer.batch_rows == 2
    assert engine.seen()[-1] == [1.0, 2.0]
    assert answer.queue_s >= 0
    assert answer.infer_s >= 0


def test_rows_of_two_web_workers_share_a_batch(machine):
    """What two web workers send while the engine is busy runs as one batch."""
    engine = machine.add("m", engine=Blocks())
    engine.let_go()
    machine.process()
    workers = [machine.worker()[0] for _ in range(2)]
    engine.hold()
    first = _in_thread(lambda: answered(_send(workers[0], 0.0)))
    engine.wait_until_started()
    waiting = [
        _in_thread(lambda w=worker, n=n: answered(_send(w, n)))
        for n, worker in enumerate(workers, 1)
    ]
    runner = machine.catalog.find("m", 1).runner
    wait_until(lambda: runner._queue.qsize() == 2, PATIENCE_S)
    engine.let_go()
    assert [first(), *(each() for each in waiting)] == [[0.0], [1.0], [2.0]]
    assert sorted(engine.seen()[-1]) == [1.0, 2.0]


@pytest.mark.parametrize(
    "error",
    [
        QueueFull("no room", 7),
        TooLarge("too many rows"),
        ModelFailed("the model failed"),
        Stopping("going"),
        NotReady("loading", 3),
    ],
)
def test_errors_cross_as_what_they_are(error):
    """An error keeps its class, its text, and when to come again."""
    rebuilt = failures.rebuild(failures.describe(error))
    assert type(rebuilt) is type(error)
    assert str(rebuilt) == str(error)
    assert vars(rebuilt) == vars(error)


def test_an_unknown_error_tells_nothing(machine):
    """An error that is none of ours, or of no known class, is an internal error."""
    described = failures.describe(ValueError("/secret/path"))
    assert "secret" not in str(failures.rebuild(described))
    assert failures.rebuild({"error": "NoSuchClass", "text": "x"}).status == 500


def test_a_refusal_is_told_from_a_failure(machine):
    """Too many rows never stood in a queue; rows that the model fails on did."""
    machine.add("m", engine=Raises(ValueError("poison")))
    machine.process()
    catalog, _ = machine.worker()
    refused = _send(catalog, *range(1000))
    with pytest.raises(TooLarge, match="in one request"):
        refused.wait()
    assert refused.was_refused
    failed = _send(catalog, Raises.poison)
    with pytest.raises(ModelFailed):
        failed.wait()
    assert not failed.was_refused


def test_a_new_version_closes_the_old_one_only_when_nobody_has_it(machine):
    """While a web worker holds a lease on version 1, version 2 serves and 1 is open."""
    old = machine.add("m")
    machine.process()
    catalog, _ = machine.worker()
    other, _ = machine.worker()
    with catalog.lease(Target()) as model:
        machine.add("m", 2)
        rescan = _in_thread(lambda: machine.loader.rescan(PATIENCE_S))
        wait_until(lambda: _version(other) == 2, PATIENCE_S)
        assert _version(catalog) == 2
        late = job(5.0)
        model.runner.submit(late)
        assert answered(late) == [5.0]
        assert not old.closed
    assert rescan()
    assert old.closed
    wait_until(lambda: [each.version for each in catalog.status("m")] == [2], 10)


def _version(catalog):
    with catalog.lease(Target()) as model:
        return model.version


def test_a_web_worker_that_dies_holds_up_no_swap(machine):
    """A version is closed although a web worker that has gone never said a word."""
    old = machine.add("m")
    machine.process()
    assert machine.loader.wait(PATIENCE_S)
    with closing(End(Connection.to(machine.path))) as silent:
        silent.send({"watch": True})
        assert silent.connection.sock.recv(1) == b"."
        assert "models" in silent.receive().meta
        machine.add("m", 2)
        rescan = _in_thread(lambda: machine.loader.rescan(PATIENCE_S))
        wait_until(lambda: machine.catalog.status("m")[-1].state == "UNLOADING", 10)
        assert not old.closed
    assert rescan()
    assert old.closed


def test_what_fails_to_load_is_known_in_web_workers(machine):
    """A broken version's reason, a label and an unloaded model are seen as they are."""
    machine.add("m", toml="[labels]\nstable = 1\n")
    machine.add("broken", engine=ValueError("no such file"))
    machine.process()
    catalog, mirror = machine.worker()
    assert answered(_send(catalog, 1.0, target=Target("m", label="stable"))) == [1.0]
    assert "ValueError" in catalog.lacks("broken")
    assert catalog.status("broken")[0].state is State.END
    mirror.unload("m", PATIENCE_S)
    assert catalog.lacks("m") == "is unloaded"
    mirror.load("m", PATIENCE_S)
    assert answered(_send(catalog, 4.0, target=Target("m"))) == [4.0]
    with pytest.raises(ModelFailed, match="failed to load 'broken'"):
        mirror.load("broken", PATIENCE_S)


def test_a_model_that_goes_is_forgotten(machine):
    """A model whose folder is removed is no more in the web worker's list."""
    machine.add("m")
    machine.add("n")
    machine.process()
    catalog, _ = machine.worker()
    (machine.models / "n" / "1").rmdir()
    (machine.models / "n" / "basket.toml").unlink()
    (machine.models / "n").rmdir()
    assert machine.loader.rescan(PATIENCE_S)
    wait_until(lambda: catalog.names() == ["m"], PATIENCE_S)


def test_a_version_that_each_process_replaces_in_turn_is_the_new_one(machine):
    """Web workers decode for what processes serve, though one of them always did."""
    catalog, _ = machine.follower(processes=2)
    processes = [Scripted(machine), Scripted(machine)]
    for process in processes:
        process.show()
    for process in processes:
        process.say(2, {})
        process.say(3, {"1": process.version("other")})
    with catalog.lease(Target()) as model:
        assert model.platform == "other"
    for process in processes:
        process.die()


def test_what_one_process_finishes_keeps_no_other_waiting(machine):
    """A change is taken in while a job of another process's old version runs there."""
    catalog, mirror = machine.follower(processes=2)
    processes = busy, other = [Scripted(machine), Scripted(machine)]
    for process in processes:
        process.show()
    other.load.add(9)
    with catalog.lease(Target()) as model:
        channels = model.runner.channels
        sent = _send(catalog, 1.0)
        busy.end.send({"revision": 2, "models": {"m": busy.model({})}})
        wait_until(lambda: len(channels()) == 1, PATIENCE_S)
        assert mirror.wait(PATIENCE_S)
        other.say(2, {"1": other.version("other")})
        busy.answer(busy.asked())
        assert answered(sent) == [1.0]
    assert busy.end.receive().meta == {"seen": 2}
    for process in processes:
        process.die()


def test_what_one_process_gives_up_another_one_may_take_up(machine):
    """A version whose last lease at one process goes on is served by the next one."""
    catalog, _ = machine.follower(processes=2)
    processes = before, after = [Scripted(machine), Scripted(machine)]
    before.show()
    after.accept()
    after.say(1, {})
    with catalog.lease(Target()):
        before.end.send({"revision": 2, "models": {"m": before.model({})}})
        wait_until(lambda: catalog.lacks("m") != "", PATIENCE_S)
        after.say(2, {"1": after.version("echo")})
        assert catalog.lacks("m") == ""
    assert before.end.receive().meta == {"seen": 2}
    sent = _send(catalog, 1.0)
    after.answer(after.asked())
    assert answered(sent) == [1.0]
    for process in processes:
        process.die()


def test_what_makes_no_sense_is_logged_and_asked_for_again(
    machine, monkeypatch, caplog
):
    """A process that describes a model wrongly is left, and listened to once more."""
    monkeypatch.setattr("app.shared_model.mirror._RETRY_LATER_S", 0)
    catalog, _, process = Scripted.followed(machine)
    process.end.send({"revision": 2, "models": {"m": {}}})
    again = Scripted(machine)
    again.show()
    assert catalog.lacks("m") == ""
    assert process.end.connection.receive() == []
    assert "what the model process says can't be taken in" in caplog.text
    process.die()
    again.die()


def test_all_that_a_codec_asks_for_crosses(machine):
    """Settings, pictures and classes of a version are those of the model process."""
    image = ImageConfig((2, 3), "RGB", "0..1", "nearest", (ImageClass("0", "tent"),))
    own = Settings(max_batch_size=8, allowed_batch_sizes=(4, 8))
    config = ModelConfig(own, {"stable": 1}, {"stable": 2.0}, image)
    served = ServedModel("m", 1, "echo", Echo().signatures, config, None, None)
    described = snapshot.of_served(served, Settings())
    crossed = snapshot.to_served("m", 1, described, Settings(), None, None)
    assert crossed == served


def test_the_death_of_the_process_is_an_answer(machine):
    """Jobs under way and to come get an error at once; a new process is found."""
    (machine.models / "m").mkdir()
    catalog, mirror, first = Scripted.followed(machine)
    sent = _send(catalog, 1.0)
    first.asked()
    first.die()
    with pytest.raises(ModelProcessGone):
        sent.wait()
    wait_until(lambda: catalog.lacks("m") == "is loading", PATIENCE_S)
    with pytest.raises(NotReady, match="is loading"):
        _send(catalog, 1.0)
    second = Scripted(machine)
    second.show()
    assert catalog.lacks("m") == ""
    sent = _send(catalog, 3.0)
    second.answer(second.asked())
    assert answered(sent) == [3.0]
    mirror.close(0)
    second.die()


def test_a_connection_that_no_thread_can_be_had_for_is_tried_again(
    machine, monkeypatch
):
    """A web worker gets what there is although each thread it takes fails once."""
    lacking = {"connection", "answers", "hang-ups"}
    machine.add("m")
    machine.process()
    _refuse_once(lacking, monkeypatch)
    catalog, _ = machine.worker()
    assert not lacking
    assert answered(_send(catalog, 1.0)) == [1.0]


def _refuse_once(lacking, monkeypatch):
    """Have the first thread of each of these names not start."""
    start = threading.Thread.start

    def start_or_fail(thread):
        if thread.name in lacking:
            lacking.remove(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_or_fail)


def test_a_job_that_no_thread_can_be_had_for_is_counted_out(machine, monkeypatch):
    """It is refused, its rows count no more, and the next job is computed."""
    machine.settings = Settings(model_dir=machine.models, batching=False)
    machine.add("m")
    process = machine.process()
    catalog, _ = machine.worker()
    _refuse_once({"job"}, monkeypatch)
    refused = _send(catalog, 1.0)
    with pytest.raises(BasketError, match="internal error"):
        refused.wait()
    assert refused.was_refused
    assert process._load.rows() == 0
    assert answered(_send(catalog, 2.0)) == [2.0]


def test_threads_have_names(machine):
    """Whoever looks at a process's threads reads what each is there for."""
    machine.add("m")
    before = set(threading.enumerate())
    machine.process()
    machine.worker()
    names = {thread.name for thread in set(threading.enumerate()) - before}
    mine, theirs = {"mirror", "answers", "hang-ups"}, {"accept", "connection", "send"}
    assert names >= mine | theirs
    assert not [name for name in names if name.startswith("Thread-")]


def test_threads_end_with_their_connection(machine, monkeypatch):
    """A death that is noticed between two looks after hang-ups ends who looks, too."""
    before = set(threading.enumerate())
    catalog, _, process = Scripted.followed(machine)
    mine = {each.name: each for each in set(threading.enumerate()) - before}
    looks, goes_on = threading.Event(), threading.Event()

    def sleep(_):
        looks.set()
        assert goes_on.wait(PATIENCE_S)

    monkeypatch.setattr("app.shared_model.channel.time", SimpleNamespace(sleep=sleep))
    _send(catalog, 1.0)
    assert looks.wait(PATIENCE_S)
    process.die()
    mine["answers"].join(PATIENCE_S)
    goes_on.set()
    mine["hang-ups"].join(PATIENCE_S)
    assert not mine["hang-ups"].is_alive()


def test_a_job_that_is_sent_into_a_death_gets_an_answer(machine):
    """Who sends before the death is noticed is refused, or told like the others."""
    catalog, _, process = Scripted.followed(machine)
    with catalog.lease(Target()) as model:

        def ask():
            one = job(1.0)
            model.runner.submit(one)
            one.wait()

        process.die()
        for _ in range(20):
            with pytest.raises(ModelProcessGone):
                ask()


def test_answers_come_in_any_order(machine):
    """Of two jobs under way the second is answered first, and each gets its own."""
    catalog, _, process = Scripted.followed(machine)
    jobs = [_send(catalog, 1.0), _send(catalog, 2.0)]
    first, second = process.asked(), process.asked()
    process.answer(second)
    assert answered(jobs[1]) == [2.0]
    assert not jobs[0].is_answered()
    process.answer(first)
    assert answered(jobs[0]) == [1.0]
    process.die()


def test_answers_that_come_together_wake_once(machine):
    """Jobs answered by one piece of the stream are told of in one call."""
    catalog, _, process = Scripted.followed(machine)
    woken = queue.Queue()
    jobs = []
    with catalog.lease(Target()) as model:
        for value in (1.0, 2.0):
            one = job(value)
            one.wake = woken.put
            model.runner.submit(one)
            jobs.append(one)
    process.answer(process.asked(), process.asked())
    assert woken.get(timeout=PATIENCE_S) == jobs
    process.die()


def test_a_stop_answers_who_waits(machine):
    """Closing the mirror fails the jobs under way, and lets no more in."""
    catalog, mirror, process = Scripted.followed(machine)
    sent = _send(catalog, 1.0)
    process.asked()
    with catalog.lease(Target()) as model:
        mirror.close(0)
        with pytest.raises(Stopping):
            sent.wait()
        with pytest.raises(Stopping):
            model.runner.submit(job(1.0))
    process.die()


def test_what_comes_at_a_stop_has_not_to_go(machine, caplog):
    """A version that a closed catalog does not take is no fault as its process ends."""
    catalog, _, process = Scripted.followed(machine)
    catalog.close()
    versions = {number: process.version("echo") for number in ("1", "2")}
    process.say(2, versions)
    process.die()
    wait_until(lambda: caplog.messages, PATIENCE_S)
    assert caplog.messages == [GONE]


def test_client_disconnect_cancels_the_job_in_the_model_process(machine):
    """When the client disconnects its job ends, and the model process is notified."""
    catalog, _, process = Scripted.followed(machine)
    disconnected = threading.Event()
    sent = _send(catalog, 1.0, is_disconnected=disconnected.is_set)
    number = process.asked().meta["number"]
    disconnected.set()
    with pytest.raises(Abandoned):
        sent.wait()
    assert process.end.receive().meta == {"drop": [number]}
    process.die()


def test_rows_of_a_disconnected_client_are_not_computed(machine):
    """Rows that their web worker has canceled never reach the engine."""
    engine = machine.add("m", engine=Blocks())
    engine.let_go()
    process = machine.process()
    catalog, _ = machine.worker()
    engine.hold()
    first = _in_thread(lambda: answered(_send(catalog, 0.0)))
    engine.wait_until_started()
    disconnected = threading.Event()
    canceled = _send(catalog, 1.0, is_disconnected=disconnected.is_set)
    wait_until(lambda: process._load.rows() == 2, PATIENCE_S)
    disconnected.set()
    with pytest.raises(Abandoned):
        canceled.wait()
    # Refused at once, and sent behind the message that cancels the other one.
    with pytest.raises(TooLarge):
        _send(catalog, *range(1000)).wait()
    engine.let_go()
    assert first() == [0.0]
    assert answered(_send(catalog, 2.0)) == [2.0]
    assert [1.0] not in engine.seen()


def test_rows_of_a_web_worker_that_died_are_not_computed(machine):
    """What a web worker leaves behind when its connection ends is dropped."""
    engine = machine.add("m", engine=Blocks())
    engine.let_go()
    process = machine.process()
    catalog, _ = machine.worker()
    engine.hold()
    first = _send(catalog, 0.0)
    engine.wait_until_started()
    with closing(End(Connection.to(machine.path))) as dying:
        specs = {"signature": "serving_default", "client": "", "reserve_s": 0.0}
        until = {"deadline": time.monotonic() + PATIENCE_S}
        asks = {"predict": ["m", 1], "number": 1, **specs, **until}
        dying.send(asks, job(1.0).inputs)
        wait_until(lambda: process._load.rows() == 2, PATIENCE_S)
    wait_until(lambda: _connections() == 1, PATIENCE_S)
    engine.let_go()
    assert answered(first) == [0.0]
    assert answered(_send(catalog, 2.0)) == [2.0]
    assert [1.0] not in engine.seen()
    wait_until(lambda: process._load.rows() == 0, PATIENCE_S)


def _connections():
    """How many web workers the model process in here has."""
    return sum(thread.name == "connection" for thread in threading.enumerate())


def test_a_process_that_says_nothing_is_late(machine):
    """A job ends at its deadline; the answer that comes then harms nobody."""
    catalog, _, process = Scripted.followed(machine)
    late = _send(catalog, 1.0, deadline=time.monotonic())
    with pytest.raises(Late):
        late.wait()
    process.answer(process.asked())
    other = _send(catalog, 2.0)
    process.answer(process.asked())
    assert answered(other) == [2.0]
    process.die()


def test_without_batching_jobs_of_one_web_worker_run_side_by_side(machine):
    """A job whose model runs in `submit` keeps no other from the model process."""
    machine.settings = Settings(model_dir=machine.models, batching=False)
    engine = machine.add("m", engine=Blocks())
    engine.let_go()
    process = machine.process()
    catalog, _ = machine.worker()
    engine.hold()
    jobs = [_in_thread(lambda n=n: answered(_send(catalog, n))) for n in (1.0, 2.0)]
    wait_until(lambda: process._load.rows() == 2, PATIENCE_S)
    engine.let_go()
    assert [one() for one in jobs] == [[1.0], [2.0]]


def test_rows_go_where_the_least_wait():
    """Of two model processes the one with fewer rows gets the next job."""
    loads = [Load(), Load()]
    asked = []

    class Noting(Channel):
        def ask(self, question, meta, tensors):
            asked.append(self)

    pairs = [socket.socketpair() for _ in loads]
    with ExitStack() as stack:
        for end in itertools.chain(*pairs):
            stack.enter_context(end)
        channels = [
            Noting(Connection(ours), load)
            for (ours, _), load in zip(pairs, loads, strict=True)
        ]
        runner = RemoteRunner("m", 1)
        for channel in channels:
            runner.add(channel)
        loads[0].add(2)
        runner.submit(job(1.0))
        loads[1].add(3)
        runner.submit(job(1.0))
        runner.remove(channels[0], 0)
        runner.submit(job(1.0))
    assert asked == [channels[1], channels[0], channels[1]]


def test_rows_go_to_a_process_that_lives():
    """A dead process gets no job though its rows are fewer; alone, it says its end."""
    loads = [Load(), Load()]
    pairs = [socket.socketpair() for _ in loads]
    runner = RemoteRunner("m", 1)
    with ExitStack() as stack:
        for end in itertools.chain(*pairs):
            stack.enter_context(end)
        dead, living = [
            Channel(Connection(ours), load)
            for (ours, _), load in zip(pairs, loads, strict=True)
        ]
        runner.add(dead)
        runner.add(living)
        loads[1].add(3)
        dead.close(ModelProcessGone("died"))
        sent, refused = job(1.0), job(1.0)
        runner.submit(sent)
        assert not sent.is_answered()
        assert End(Connection(pairs[1][1])).receive().meta["predict"] == ["m", 1]
        living.close(Stopping("stopped"))
        runner.remove(living, 0)
        runner.submit(refused)
        with pytest.raises(ModelProcessGone, match="died"):
            refused.wait()


def test_a_process_that_comes_back_has_what_is_under_way():
    """A job that outlasted the wait for it is counted out once, when it ends."""
    asked = []

    class Noting(Channel):
        def ask(self, question, meta, tensors):
            asked.append(question)

    ours, theirs = socket.socketpair()
    with ours, theirs:
        channel = Noting(Connection(ours), Load())
        runner = RemoteRunner("m", 1)
        runner.add(channel)
        runner.submit(job(1.0))
        runner.remove(channel, 0)
        runner.add(channel)
        asked[0].fail(Late("too late"))
        _in_thread(lambda: runner.remove(channel, 2 * PATIENCE_S))()


def test_an_answer_that_makes_no_sense_is_its_job_s_alone(machine, caplog):
    """A job whose answer can't be read fails, and the next one is answered."""
    catalog, _, process = Scripted.followed(machine)
    failed = _send(catalog, 1.0)
    process.end.send({"number": process.asked().meta["number"]})
    with pytest.raises(BasketError, match="internal error"):
        failed.wait()
    assert "an answer of the model process makes no sense" in caplog.text
    sent = _send(catalog, 2.0)
    process.answer(process.asked())
    assert answered(sent) == [2.0]
    # Neither of them is under way.
    process.say(2, {})
    process.die()


def test_a_load_is_seen_through_its_descriptor():
    """Another process that has the descriptor reads the number as it is."""
    mine = Load()
    theirs = Load(mine.fd)
    mine.add(5)
    assert theirs.rows() == 5
    mine.add(-3)
    assert theirs.rows() == 2
    mine.close()
    assert theirs.rows() == 2


def test_a_batch_that_does_not_end_is_a_hang(machine):
    """A process hangs when a batch takes longer than a request may, and not before."""
    machine.settings = Settings(
        model_dir=machine.models, max_batch_size=4, request_timeout_ms=1
    )
    engine = machine.add("m", engine=Blocks())
    engine.let_go()
    process = machine.process()
    assert machine.loader.wait(PATIENCE_S)
    engine.hold()
    assert not process.hangs()
    runner = machine.catalog.find("m", 1).runner
    runner.submit(job(1.0))
    engine.wait_until_started()
    wait_until(process.hangs, PATIENCE_S)


def test_wild_bytes_end_their_connection_only(machine):
    """What is no frame, and a frame that asks for nothing, harm nobody else."""
    machine.add("m")
    machine.process()
    catalog, _ = machine.worker()
    with socket.socket(socket.AF_UNIX) as wild:
        wild.connect(machine.path)
        wild.sendall(b"GET / HTTP/1.1\r\n\r\n")
        with suppress(ConnectionResetError):
            assert wild.recv(100) == b""
    strange = End(Connection.to(machine.path))
    for meta in ({}, {"predict": 3}, {"predict": ["m", 9]}, {"load": ["m"]}):
        strange.send(meta)
        assert "error" in strange.receive().meta
    strange.close()
    assert answered(_send(catalog, 1.0)) == [1.0]


def test_without_gunicorn_there_is_no_model_process(machine):
    """A start that nobody has made a model process for says what is missing."""
    mirror = Mirror(machine.settings, Catalog(None), lambda *_: Notes(), [])
    with pytest.raises(SettingsError, match="only Gunicorn"):
        mirror.start()
