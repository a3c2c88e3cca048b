"""Promotions of new versions, with checks and a clock that the test sets."""

import errno
import os
import shutil
import subprocess
from contextlib import contextmanager

import pytest

from app.errors import Abandoned, QueueFull
from app.promotion.record import Records
from app.run_dir.json_files import JsonFiles
from app.run_dir.notes import Notes
from tests.support.rollout_server import WATCHED_S, shares, version_of

AT_ONCE = "[promotion]\nsteps = [100]"


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
    reason = "not promoted: agrees in 3 of 200 rows"
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


def raising(error):
    def prove(*_):
        raise error

    return prove


def test_proof_that_raises_refuses_the_version(server, monkeypatch):
    """An error that no model raised would come again with each scan."""
    process = server.start()
    monkeypatch.setattr(server.checks, "prove", raising(TypeError("not a number")))
    server.add(2)
    server.scan()
    monkeypatch.undo()
    server.scan()
    assert shares(process) == {1: 100}
    assert server.checks.proofs == []
    reason = "version 2: not promoted: its proof failed: TypeError: not a number"
    assert process.catalog.problems() == {"m": [reason]}


@pytest.mark.parametrize("error", [QueueFull("full"), Abandoned("stopping")])
def test_proof_that_can_not_run_now_is_tried_again(server, monkeypatch, error):
    """A server that is full or stops says nothing of the version."""
    process = server.start()
    with monkeypatch.context() as patched:
        patched.setattr(server.checks, "prove", raising(error))
        server.add(2)
        server.scan()
        assert shares(process) == {1: 100}
        assert process.catalog.problems() == {}
    server.scan()
    assert server.checks.proofs == [(1, 2)]


@pytest.fixture(name="full")
def _full(monkeypatch):
    """Return a context in which the run directory, but no other disk, is full."""

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    @contextmanager
    def filled():
        with monkeypatch.context() as patched:
            patched.setattr(JsonFiles, "_write", full)
            patched.setattr(Notes, "add", full)
            yield

    return filled


def test_full_run_directory_delays_a_rollout_without_another_proof(server, full):
    """A proof may take two minutes, and counts for these files alone."""
    process = server.start()
    server.add(2)
    with full():
        for _ in range(3):
            server.scan()
            server.tick()
        assert shares(process) == {1: 100}
        assert server.checks.proofs == [(1, 2)]
        server.add(3)
        server.scan()
        assert server.checks.proofs == [(1, 2), (1, 3)]
    server.scan()
    server.tick()
    assert shares(process)[3] == pytest.approx(1, abs=0.2)
    assert server.checks.proofs == [(1, 2), (1, 3)]
    assert server.checks.counted == [("m", 2, "proven"), ("m", 3, "proven")]


@pytest.mark.parametrize("problem", ["is slow", ""])
def test_full_run_directory_ends_a_rollout_once(server, full, problem):
    """The version is sent back at once, or promoted, and counted once."""
    process = server.start()
    server.add(2)
    server.scan()
    with full():
        server.tick(60)
        assert shares(process)[2] == pytest.approx(10, abs=0.2)
        server.checks.problem = problem
        server.tick(0 if problem else WATCHED_S)
        server.checks.problem = ""
        for _ in range(2):
            server.tick()
            assert shares(process) == {1 if problem else 2: 100}
    result = "sent_back" if problem else "promoted"
    assert server.checks.counted[1:] == [("m", 2, result)]
    for _ in range(2):
        server.tick()
        server.scan()
        assert process.serving("m") == {1 if problem else 2}
    server.add(3)
    server.scan()
    server.tick()
    assert shares(process)[3] == pytest.approx(1, abs=0.2)


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
    """That is a rollback by hand."""
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


def _refused(server):
    """Refuse version 2 by hand, and then try it again."""
    records = Records(server.capture_dir)
    records.refuse("m", 2, server.content(2), "by hand")
    yield
    records.retry("m", 2)


def _gone(server):
    """Take version 2 away, and put it back."""
    shutil.rmtree(server.models / "m" / "2")
    yield
    server.add(2)


def _behind_a_newer_one(server):
    """Add a version 3 whose proof fails."""
    server.checks.refusals[3] = "is worse"
    server.add(3)
    yield


def _without_promotion(server):
    """Turn promotion off, with a split by hand, and on again."""
    server.add(1, toml="[labels]\nstable = 1\n[traffic]\nstable = 1\n")
    yield
    server.add(1)


@pytest.mark.parametrize(
    "interrupted", [_refused, _gone, _behind_a_newer_one, _without_promotion]
)
def test_interrupted_rollout_begins_again_with_a_proof(server, interrupted):
    """The time that went by since is none of its steps."""
    process = server.start()
    server.add(2)
    server.scan()
    server.tick(60)
    assert 2 in shares(process)
    steps = interrupted(server)
    next(steps)
    server.scan()
    server.tick()
    assert shares(process) == {1: 100}
    next(steps, None)
    server.tick(WATCHED_S)
    for _ in range(2):
        server.scan()
        server.tick()
    assert server.checks.proofs.count((1, 2)) == 2
    assert server.record().proven.version == 1
    assert shares(process)[2] == pytest.approx(1, abs=0.2)


@pytest.mark.parametrize("after_s", [60, WATCHED_S], ids=["in a step", "at its end"])
def test_refusal_by_hand_ends_a_rollout_before_the_next_scan(server, after_s):
    """A scan may take minutes, while another model loads."""
    process = server.start()
    server.add(2)
    server.scan()
    server.tick()
    Records(server.capture_dir).refuse("m", 2, server.content(2), "by hand")
    server.tick(after_s)
    assert shares(process) == {1: 100}
    record = server.record()
    assert (record.proven.version, record.refused[2].reason) == (1, "by hand")
    assert server.checks.counted[-1] == ("m", 2, "sent_back")


def test_refusal_by_hand_during_a_proof_begins_no_rollout(server, monkeypatch):
    """Not even for the time until the next scan."""
    process = server.start()
    prove = server.checks.prove

    def refuse_meanwhile(*versions):
        Records(server.capture_dir).refuse("m", 2, server.content(2), "by hand")
        return prove(*versions)

    monkeypatch.setattr(server.checks, "prove", refuse_meanwhile)
    server.add(2)
    server.scan()
    server.tick()
    assert shares(process) == {1: 100}
    server.scan()
    assert server.checks.proofs == [(1, 2)]


def test_version_forced_in_its_rollout_proves_itself_again_once_it_was_gone(server):
    """The rollout ended with the decision."""
    process = server.start()
    server.add(2)
    server.scan()
    server.tick(60)
    Records(server.capture_dir).force("m", 2, server.content(2), {})
    for _ in range(2):
        server.scan()
        server.tick()
    assert shares(process) == {2: 100}
    shutil.rmtree(server.models / "m" / "2")
    server.scan()
    server.tick()
    assert shares(process) == {1: 100}
    server.add(2)
    server.tick(WATCHED_S)
    for _ in range(2):
        server.scan()
        server.tick()
    assert server.checks.proofs == [(1, 2)] * 2
    assert shares(process)[2] == pytest.approx(1, abs=0.2)


def test_first_of_two_decisions_on_a_version_holds(server):
    """One that was refused is not proven, and one that was proven is not refused."""
    records = Records(server.capture_dir)
    records.prove("m", 1, "a")
    records.refuse("m", 2, "b", "by hand")
    records.prove("m", 2, "b")
    assert records.of("m").proven.version == 1
    records.refuse("m", 1, "a", "by hand")
    assert records.of("m").refused.keys() == {2}


def test_version_that_one_process_can_not_load_stays_in_its_rollout(server):
    """The others go on with it."""
    process = server.start()
    server.add(2)
    server.scan()
    server.tick(60)
    other = server.start(broken=2)
    server.scan()
    server.tick()
    assert shares(other) == {1: 100}
    assert shares(process)[2] == pytest.approx(10, abs=0.2)
    assert server.checks.proofs == [(1, 2)]


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
