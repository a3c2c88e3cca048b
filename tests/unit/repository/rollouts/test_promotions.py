"""Promotions of new versions, with checks and a clock that the test sets."""

import json
import os
import subprocess

import pytest

from app.promotion.record import Record, Records
from app.repository.rollouts.rollout_files import RolloutFiles
from app.repository.rollouts.traffic_mover import TrafficMover
from app.repository.routing import Target
from tests.support.engines import Echo
from tests.support.loading import Loading
from tests.support.rollouts import Decided

TOML = """
[promotion]
steps = [1, 10, 100]
step_s = 60
watch_s = 300
"""
WATCHED_S = 3 * 60 + 300
AT_ONCE = "[promotion]\nsteps = [100]"


class Clock:
    """A monotonic clock that a test moves."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class Server:
    """Loaders of one folder, one for each process of a server."""

    def __init__(self, folder):
        self.folder = folder
        self.models, self.capture_dir = folder / "models", folder / "captured"
        self.models.mkdir()
        self.clock, self.checks = Clock(), Decided()
        self.processes = []
        self.starts = 0

    def start(self):
        """Start a process of the server."""
        parts = self.checks, RolloutFiles(self.folder / f"run{self.starts}"), self.clock
        process = Loading(self.models, *parts, capture_dir=self.capture_dir)
        for version in self.versions():
            process.engines["m", version] = Echo()
        self.processes.append(process)
        process.load()
        return process

    def restart(self):
        """End all processes, lose what is in shared memory, and start one."""
        self.close()
        self.processes.clear()
        self.starts += 1
        return self.start()

    def versions(self):
        folders = (self.models / "m").glob("[0-9]*")
        return [each.name for each in folders]

    def add(self, version, content="a", toml=TOML):
        """Write a version, whose engine all processes have."""
        folder = self.models / "m" / str(version)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "weights").write_text(content)
        (self.models / "m" / "basket.toml").write_text(toml)
        for process in self.processes:
            process.engines["m", str(version)] = Echo()

    def scan(self):
        for process in self.processes:
            process.rescan()

    def tick(self, after_s=0.0):
        """Let time pass, and have each process look at its rollouts."""
        self.clock.now += after_s
        for process in self.processes:
            process.promotions.mover.tick()

    def record(self):
        return Records(self.capture_dir).of("m")

    def close(self):
        for process in self.processes:
            process.close()


@pytest.fixture(name="server")
def _server(tmp_path, monkeypatch):
    # The test calls `tick`.
    monkeypatch.setattr(TrafficMover, "start", lambda _: None)
    server = Server(tmp_path)
    server.add(1)
    yield server
    server.close()


def version_of(process, client=None):
    """Return the version that gets a request."""
    with process.catalog.lease(Target("m", client=client)) as model:
        return model.version


def shares(process):
    """Return the percent of 1000 requests that each version gets."""
    answers = [version_of(process) for _ in range(1000)]
    return {version: answers.count(version) / 10 for version in set(answers)}


def test_first_version_serves_and_is_proven(server):
    """There is nothing to compare it with."""
    process = server.start()
    assert process.answers("m") == 1
    assert server.checks.proofs == []
    assert server.record().proven.version == 1


def test_newest_of_several_versions_serves_where_none_is_proven(server):
    """That is what the server would do without promotion."""
    server.add(2)
    process = server.start()
    assert process.answers("m") == 2
    assert process.opened == [("m", "2")]


def test_new_version_gets_the_traffic_step_by_step(server):
    """The version before stays loaded until the watch is over."""
    process = server.start()
    server.add(2)
    server.scan()
    assert server.checks.proofs == [(1, 2)]
    for percent in (1.0, 10.0):
        server.tick()
        assert shares(process)[2] == pytest.approx(percent, abs=0.2)
        server.tick(60)
    assert shares(process) == {2: 100}
    server.tick(300 + 59)
    server.scan()
    assert process.serving("m") == {1, 2}
    assert server.record().proven.version == 1
    server.tick(2)
    server.scan()
    assert process.serving("m") == {2}
    assert server.record().proven.version == 2
    assert server.checks.counted == [("m", 2, "proven"), ("m", 2, "promoted")]
    assert process.catalog.problems() == {}


def test_version_with_a_single_step_takes_over_at_once(server):
    """It is watched all the same."""
    process = server.start()
    server.add(2, toml=AT_ONCE)
    server.scan()
    server.tick()
    assert shares(process) == {2: 100}
    assert process.serving("m") == {1, 2}


def test_client_stays_on_its_side_while_the_share_grows(server):
    """Who has the new version at 1 % has it at 10 %, too."""
    process = server.start()
    server.add(2)
    server.scan()
    clients = [f"till-{number}" for number in range(2000)]
    server.tick()
    early = {client for client in clients if version_of(process, client) == 2}
    server.tick(60)
    later = {client for client in clients if version_of(process, client) == 2}
    assert early
    assert early < later
    assert len(later) == pytest.approx(200, abs=50)


def test_refused_version_never_serves_and_says_why(server):
    """It is unloaded, also after a restart, until its files change."""
    process = server.start()
    server.checks.refusals[2] = "agrees in 3 of 200 rows"
    server.add(2)
    for _ in range(3):
        server.scan()
        server.tick()
    assert process.serving("m") == {1}
    reason = "is not promoted: agrees in 3 of 200 rows"
    assert process.catalog.problems() == {"m": [f"version 2: {reason}"]}
    process = server.restart()
    assert process.opened == [("m", "1")]
    assert process.catalog.problems() == {"m": [f"version 2: {reason}"]}
    assert server.checks.proofs == [(1, 2)]
    server.checks.refusals.clear()
    server.add(2, "b")
    server.scan()
    assert server.checks.proofs == [(1, 2)] * 2
    assert process.catalog.problems() == {}


def test_problem_in_a_step_sends_all_traffic_back_at_once(server):
    """No load is needed, and the version is refused from then on."""
    process = server.start()
    server.add(2)
    server.scan()
    server.tick(60)
    assert 2 in shares(process)
    server.checks.problem = "500 for 4 of 9 requests"
    server.tick()
    assert shares(process) == {1: 100}
    assert process.opened == [("m", "1"), ("m", "2")]
    server.scan()
    assert process.serving("m") == {1}
    assert "500 for 4 of 9 requests" in str(process.catalog.problems())
    assert server.checks.counted[-1] == ("m", 2, "sent_back")
    assert process.answers("m") == 1


def test_problem_in_the_watch_sends_all_traffic_back(server):
    """The version before is still loaded."""
    process = server.start()
    server.add(2)
    server.scan()
    server.tick(WATCHED_S - 1)
    assert shares(process) == {2: 100}
    server.checks.problem = "is slow"
    server.tick()
    assert shares(process) == {1: 100}
    assert server.checks.judged[-1][1] == 3


def test_processes_compare_once_and_agree(server):
    """What one of them finds counts in all of them."""
    first, second = server.start(), server.start()
    server.add(2)
    server.scan()
    assert server.checks.proofs == [(1, 2)]
    server.tick(60)
    assert shares(first)[2] == pytest.approx(10, abs=0.2)
    assert shares(second)[2] == pytest.approx(10, abs=0.2)
    server.checks.problem = "is slow"
    first.promotions.mover.tick()
    server.checks.problem = ""
    second.promotions.mover.tick()
    assert shares(first) == shares(second) == {1: 100}
    server.scan()
    assert second.serving("m") == {1}
    assert server.checks.counted == [("m", 2, "proven"), ("m", 2, "sent_back")]


def test_version_that_is_promoted_during_an_update_is_not_compared_again(
    server, monkeypatch
):
    """The mover's thread ends a rollout between an update's two looks at it."""
    process = server.start()
    server.add(2)
    server.scan()
    update = process.promotions.update

    def update_late(*standing):
        server.tick(WATCHED_S)
        update(*standing)

    monkeypatch.setattr(process.promotions, "update", update_late)
    server.scan()
    assert server.record().proven.version == 2
    assert server.checks.proofs == [(1, 2)]
    assert shares(process) == {2: 100}


def test_process_that_starts_in_a_step_joins_it(server):
    """A worker that was killed is replaced in the middle of a rollout."""
    server.start()
    server.add(2)
    server.scan()
    server.tick(60)
    joined = server.start()
    joined.promotions.mover.tick()
    assert shares(joined)[2] == pytest.approx(10, abs=0.2)
    assert server.checks.proofs == [(1, 2)]


def crash(server):
    """Leave what a process leaves that ended in the rollout under way."""
    (held,) = (server.folder / "run0" / "holders").glob(f"*.{os.getpid()}")
    dead = subprocess.run(["sh", "-c", "echo $$"], capture_output=True, check=True)
    held.with_suffix(f".{int(dead.stdout)}").touch()


def test_second_crash_of_a_process_sends_all_traffic_back(server):
    """One may have had another cause, such as a kill by hand."""
    first, second = server.start(), server.start()
    server.add(2)
    server.scan()
    crash(server)
    server.tick(60)
    assert shares(second)[2] == pytest.approx(10, abs=0.2)
    crash(server)
    server.tick()
    assert shares(first) == shares(second) == {1: 100}
    server.scan()
    assert first.serving("m") == {1}
    text = "2 processes ended while it got traffic, by a crash or for want of memory"
    assert server.record().refused[2].reason == text
    assert server.checks.counted == [("m", 2, "proven"), ("m", 2, "sent_back")]
    assert list((server.folder / "run0" / "holders").iterdir()) == []


def test_end_of_a_process_by_a_shutdown_is_no_crash(server):
    """Neither before nor after its last look does it count against a version."""
    process = server.start()
    server.add(2)
    server.scan()
    server.tick()
    assert len(list((server.folder / "run0" / "holders").iterdir())) == 1
    process.close()
    process.promotions.mover.tick()
    assert list((server.folder / "run0" / "holders").iterdir()) == []


def test_restart_in_a_step_serves_the_proven_version(server):
    """The new version begins again, with its proof."""
    server.start()
    server.add(2)
    server.scan()
    server.tick(100)
    process = server.restart()
    assert process.opened[0] == ("m", "1")
    server.tick()
    assert shares(process)[1] == pytest.approx(99, abs=0.2)
    assert server.checks.proofs == [(1, 2)] * 2


def test_newer_version_ends_the_rollout_of_an_older_one(server):
    """Both begin at the proven version."""
    process = server.start()
    server.add(2)
    server.scan()
    server.tick(60)
    server.add(3)
    server.scan()
    server.tick()
    assert server.checks.proofs == [(1, 2), (1, 3)]
    assert shares(process)[3] == pytest.approx(1, abs=0.2)
    assert process.serving("m") == {1, 3}


def test_counts_of_a_rollout_are_kept_until_the_next_one(server):
    """Its last requests are counted behind its end, and nothing piles up."""
    server.start()
    server.add(2)
    server.scan()
    server.tick()
    ((first, _), *_) = server.checks.judged
    server.checks.problem = "is slow"
    server.tick(1)
    assert server.checks.forgotten == []
    server.checks.problem = ""
    server.add(3)
    server.scan()
    for _ in range(2):
        server.tick(1)
        assert server.checks.forgotten == [first]


def test_rollout_of_an_unloaded_model_begins_again(server):
    """Nobody has seen the new version meanwhile."""
    process = server.start()
    server.add(2)
    server.scan()
    server.tick(60)
    process.loader.unload("m", 10)
    server.tick(WATCHED_S)
    process.loader.load("m", 10)
    server.tick()
    assert server.record().proven.version == 1
    assert shares(process)[2] == pytest.approx(1, abs=0.2)
    assert server.checks.proofs == [(1, 2)] * 2


def test_version_that_can_not_be_loaded_leaves_the_proven_one(server):
    """Its own error is shown."""
    process = server.start()
    server.add(2)
    process.engines["m", "2"] = ValueError("broken")
    server.scan()
    server.tick()
    assert shares(process) == {1: 100}
    assert server.checks.proofs == []


def test_proven_version_that_is_gone_is_replaced_by_the_one_before(server):
    """Taking a version's folder away is how an operator rolls back."""
    server.add(2)
    process = server.start()
    server.add(1)
    (server.models / "m" / "2" / "weights").unlink()
    process.remove("m", 2)
    server.scan()
    server.tick()
    assert process.answers("m") == 1
    server.scan()
    assert server.record().proven.version == 1


def test_forced_version_takes_over_without_a_proof(server):
    """Newer versions are refused, so that they don't take over again."""
    process = server.start()
    server.checks.refusals[2] = "is worse"
    server.add(2)
    server.scan()
    server.scan()
    content = server.record().refused[2].content
    Records(server.capture_dir).force("m", 2, content, {})
    server.scan()
    server.tick()
    assert shares(process) == {2: 100}
    server.scan()
    assert process.serving("m") == {2}
    assert server.record().proven.version == 2
    assert server.record().forced is None
    assert server.checks.proofs == [(1, 2)]


def test_forced_older_version_refuses_the_newer_one(server):
    """That is the way back by hand."""
    process = server.start()
    server.add(2, toml=AT_ONCE)
    server.scan()
    server.tick(WATCHED_S)
    server.scan()
    assert process.serving("m") == {2}
    records = Records(server.capture_dir)
    content = server.record().proven.content
    records.force("m", 1, content, {2: content})
    for _ in range(2):
        server.scan()
        server.tick()
    assert process.serving("m") == {1}
    assert "version 1 was promoted by force" in str(process.catalog.problems())


def test_retried_version_has_to_prove_itself_again(server):
    """Nothing but the refusal is forgotten."""
    server.start()
    server.checks.refusals[2] = "is worse"
    server.add(2)
    server.scan()
    Records(server.capture_dir).retry("m", 2)
    server.scan()
    assert server.checks.proofs == [(1, 2)] * 2


def test_traffic_of_labels_goes_before_a_promotion(server):
    """Whoever splits traffic by hand decides by hand."""
    process = server.start()
    split = "[labels]\nold = 1\nnew = 2\n[traffic]\nold = 1\n[promotion]"
    server.add(2, toml=split)
    server.scan()
    server.tick()
    assert shares(process) == {1: 100}
    assert server.checks.proofs == []


def test_labeled_version_that_was_refused_stays_loaded(server):
    """Clients may ask for the label; other requests never get it."""
    process = server.start()
    server.checks.refusals[2] = "is worse"
    server.add(2, toml="[labels]\ncanary = 2\n[promotion]")
    for _ in range(2):
        server.scan()
        server.tick()
    assert shares(process) == {1: 100}
    assert process.answers("m", label="canary") == 2
    problems = {"m": ["version 2 is not promoted: is worse"]}
    assert process.catalog.problems() == problems


def test_promotion_that_is_turned_off_lets_the_newest_serve(server):
    """It is as before promotion was turned on."""
    process = server.start()
    server.add(2)
    server.scan()
    server.add(2, toml="")
    server.scan()
    server.tick()
    assert shares(process) == {2: 100}


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"proven": 1}', '{"refused": {"a": 1}}']
)
def test_foreign_record_is_ignored(server, text):
    """The newest version serves, as if there was no record."""
    folder = server.capture_dir / ".promotions"
    folder.mkdir(parents=True)
    (folder / "m.json").write_text(text)
    assert server.start().answers("m") == 1
    assert server.record() == Record(server.record().proven)


def test_record_is_json(server):
    """An operator can read it."""
    server.start()
    text = (server.capture_dir / ".promotions" / "m.json").read_text()
    assert json.loads(text)["proven"][0] == 1


def test_record_that_can_not_be_written_is_kept_in_memory(server, caplog):
    """A full disk stops no promotion; the reason is logged once."""
    server.capture_dir.touch()
    process = server.start()
    server.checks.refusals[2] = "is worse"
    server.add(2)
    for _ in range(3):
        server.scan()
        server.tick()
    assert shares(process) == {1: 100}
    assert server.checks.proofs == [(1, 2)]
    errors = [each for each in caplog.records if "record of model m" in each.message]
    assert len(errors) == 1
    server.capture_dir.unlink()
    server.add(3)
    server.scan()
    server.tick(WATCHED_S)
    assert server.record().proven.version == 3
