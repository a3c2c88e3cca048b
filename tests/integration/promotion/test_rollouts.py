"""New versions under load: the good takes over, the bad goes back by itself."""

import itertools
import json
import math
import os
import re
import signal
import threading
import time
from collections import Counter, defaultdict
from contextlib import contextmanager, suppress
from http.client import HTTPException
from typing import NamedTuple

import pytest

from app.promotion.evidence import Evidence
from app.promotion.judgment import problem
from app.settings.promotion_config import PromotionConfig
from testing.clients import Client, in_parallel
from tests.support.user_code import add_service, serving_code

CLIENTS = 8
ROLLOUTS = int(os.environ.get("ROLLOUTS", "2"))
GOOD = """
import os
import random
import time

import numpy as np

chance = random.Random(os.urandom(8))


def predict(model, batch):
    rows = model(batch)
{fault}
    return rows
"""
# What a version does to its rows, a dict of arrays.
NONE = ""
SHUFFLED = """
    rows = {name: each[:, ::-1] for name, each in rows.items()}
"""
# Three times as slow.
SLOW = """
    time.sleep(0.02)
"""
# Once there is a file beside the folder of models: by chance, a version may fail its
# proof before.
LATER = 'os.path.exists(__file__.split("/models/")[0] + "/is_worse")'
NOT_A_NUMBER_LATER = f"""
    for each in rows.values():
        for row in each:
            if {LATER} and chance.random() < 0.03:
                row[0] = np.nan
"""
# More than the pauses of a busy machine.
SLOW_LATER = f"""
    if {LATER}:
        time.sleep(0.3)
"""
CRASHES_LATER = f"""
    if {LATER}:
        os.kill(os.getpid(), 9)
"""
RAISES_LATER = f"""
    if {LATER} and chance.random() < 0.05:
        raise ValueError("one of twenty")
"""
RAISES_OFTEN_LATER = f"""
    if {LATER} and chance.random() < 0.3:
        raise ValueError("three of ten")
"""
# Rows for the proof that can't tell, so that only the traffic does.
BLIND = "replay = 1\nmin_agreement = 0"
STEPS = "steps = [20, 100]\nstep_s = {step_s}\nwatch_s = 60"
# After enough evidence, a version is back.
WITHIN_S = 5
# Two of the server's looks.
LASTS_S = 0.5
MODEL = {"base_ms": 10, "per_row_ms": 0, "input_shape": [3], "outputs": 3}
ROW = [0.1, 0.2, 0.7]


class Answer(NamedTuple):
    at: float
    status: int
    version: str
    body: bytes
    client: str = ""


def add(models, number, fault=NONE):
    """Write a version that returns its rows after 10 ms, but for the fault."""
    code = GOOD.replace("{fault}", fault)
    add_service(models, "m", code, number, simulated=MODEL)


def configure(models, *lines):
    (models / "m").mkdir(parents=True, exist_ok=True)
    (models / "m" / "basket.toml").write_text("\n".join(["[promotion]", *lines]))


class Load:
    """Clients without think time, and what each answer was.

    With `names`, each request has one of so many names of a client.
    """

    def __init__(self, port, names=0):
        self._port = port
        self._names = names
        self._over = threading.Event()
        self._thread = threading.Thread(target=in_parallel, args=(self._ask, CLIENTS))
        self.answers = []

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()

    def _ask(self, place):
        # A name is that of one thread, so that its answers are in order.
        names = [f"till-{number}" for number in range(place, self._names, CLIENTS)]
        while not self._over.is_set():
            with Client(self._port) as client:
                try:
                    self._ask_on(client, itertools.cycle(names or [""]))
                except (ConnectionError, HTTPException) as error:
                    text = repr(error).encode()
                    self.answers.append(Answer(time.monotonic(), 0, "", text))

    def _ask_on(self, client, names):
        """Ask until the end, or raise where the connection ends."""
        while not self._over.is_set():
            name = next(names)
            client.send([ROW], {"X-Client-Id": name} if name else None)
            reply = client.receive()
            version = reply.headers.get("X-Model-Version", "")
            now = time.monotonic()
            self.answers.append(Answer(now, reply.status, version, reply.body, name))

    def versions(self, since=0.0, until=math.inf):
        answers = self.answers[:]
        return Counter(each.version for each in answers if since <= each.at <= until)

    def by_client(self):
        """Return the answers to each client, in order."""
        found = defaultdict(list)
        for each in self.answers:
            found[each.client].append(each)
        return found

    def first_and_last_at(self, version):
        times = [each.at for each in self.answers if each.version == version]
        return min(times), max(times)

    def failed(self):
        return [each.body for each in self.answers[:] if each.status != 200]


class Observer(threading.Thread):
    """Reads the server's counts itself: `enough_at` is when they became evidence.

    Evidence near its threshold comes and goes, between the server's looks, too. So it
    is when evidence came that lasted for two of them; else when it was last there.
    """

    def __init__(self, run_dirs, *steps):
        super().__init__(daemon=True)
        self._run_dirs = run_dirs
        self._config = PromotionConfig(steps=steps)
        self.enough_at = math.inf

    def run(self):
        since, now = math.inf, time.monotonic()
        while now - since < LASTS_S:
            time.sleep(0.02)
            now = time.monotonic()
            if any(map(self._is_enough, self._run_dirs.glob("*/evidence"))):
                since, self.enough_at = min(since, now), now
            else:
                since = math.inf
        self.enough_at = since

    def _is_enough(self, folder):
        evidence = Evidence(folder)
        keys = {file.name.partition(".")[0] for file in folder.glob("[!.]*")}
        return any(problem(evidence.read(key), 0, self._config) for key in keys)


@contextmanager
def serving_models(models, *args, **settings):
    settings.setdefault("capture_dir", str(models.parent / "captured"))
    with serving_code(models, *args, **settings) as server:
        yield server


def problems(server):
    return json.dumps(server.request("GET", "/readyz").json().get("problems", {}))


def result(server, name, version=2):
    """Return how often a version had this result."""
    labels = f'model="m",result="{name}",version="{version}"'
    return server.metric(f"basket_promotions_total{{{labels}}}")


def promoted(server, version):
    return result(server, "promoted", version) == 1


@pytest.fixture(name="models")
def _models(tmp_path):
    models = tmp_path / "models"
    add(models, 1)
    return models


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (SHUFFLED, "most different: row "),
        (SLOW, "times as long"),
    ],
    ids=["shuffled", "slow"],
)
def test_version_that_fails_its_proof_answers_nobody(models, fault, reason):
    """The version before serves every request, and the reason is shown."""
    configure(models, "replay = 30", STEPS.format(step_s=1), "[capture]", "share = 1")
    written = 'basket_captured_total{model="m",result="written"}'
    with serving_models(models) as server, Load(server.port) as load:
        server.wait_until(lambda: server.metric(written) > 30, 30)
        add(models, 2, fault)
        server.wait_until(lambda: "not promoted" in problems(server), 120)
        shown, log = problems(server), server.log.read_text()
        assert reason in shown
        assert "is compared with version 1: 30 captured rows" in log
        # The report's table.
        assert "model m:   batch of 1 " in log
        if fault == SHUFFLED:
            assert re.search(r"row \d+, output by 0.6 \(request [0-9a-z-]+\)", shown)
            assert re.search(
                r"rows that differ most:\n.* \(request [0-9a-z-]+\)\n", log
            )
        assert result(server, "refused") == 1
    assert set(load.versions()) == {"1"}
    assert load.failed() == []


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (NOT_A_NUMBER_LATER, "NaN in"),
        (SLOW_LATER, "max_slowdown"),
        (RAISES_LATER, "500, 504 or 507 for"),
    ],
    ids=["NaN", "slow", "raising"],
)
def test_version_that_is_worse_under_load_goes_back(models, fault, reason):
    """It answers its share until then, and nothing afterwards."""
    configure(models, BLIND, STEPS.format(step_s=600))
    observer = Observer(models.parent, 20, 100)
    args = "--threads=4", f"--worker-tmp-dir={models.parent}"
    with serving_models(models, *args) as server, Load(server.port) as load:
        observer.start()
        add(models, 2, fault)
        server.wait_until(lambda: load.versions()["2"] > 0, 60)
        (models.parent / "is_worse").touch()
        server.wait_until(lambda: "not promoted" in problems(server), 120)
        back_at = time.monotonic() + 1
        assert reason in problems(server)
        server.wait_until(lambda: load.versions(back_at)["1"] > 100, 60)
        assert result(server, "sent_back") == 1
        assert load.versions(back_at).keys() <= {"1"}
    observer.join(WITHIN_S)
    first_at, last_at = load.first_and_last_at("2")
    back_s = last_at - observer.enough_at
    print(f"{reason}: back {back_s:.2f} s after enough evidence")
    assert -math.inf < back_s < WITHIN_S
    versions = load.versions(first_at, last_at)
    assert versions["2"] < 0.22 * versions.total()
    assert all(
        b"one of twenty" in body or b"ValueError" in body for body in load.failed()
    )


TWO_WORKERS = pytest.mark.parametrize(
    ("args", "settings"),
    [
        (("--threads=4", "--workers=2"), {}),
        (("--threads=4", "--workers=2"), {"model_process": "shared"}),
    ],
    ids=["two workers", "shared model"],
)


@TWO_WORKERS
def test_version_that_crashes_its_process_goes_back(models, args, settings):
    """After the second crash the version before serves, and no process ends."""
    configure(models, BLIND, STEPS.format(step_s=600))
    with serving_models(models, *args, **settings) as server:
        with Load(server.port) as load:
            add(models, 2, CRASHES_LATER)
            server.wait_until(lambda: load.versions()["2"] > 0, 60)
            (models.parent / "is_worse").touch()

            def says_why():
                # The worker that is asked may just end, or not have looked yet.
                with suppress(ConnectionError, HTTPException):
                    return "processes ended while it got traffic" in problems(server)
                return False

            server.wait_until(says_why, 60)
            back_at = time.monotonic() + 1
            server.wait_until(lambda: load.versions(back_at)["1"] > 100, 60)
        assert server.log.read_text().count("was sent SIGKILL") in (2, 3)
        assert load.versions(back_at).keys() == {"1"}


@TWO_WORKERS
def test_good_version_is_promoted_under_load(models, args, settings):
    """No request fails, each client changes once, and it has all traffic in the end."""
    configure(models, "replay = 30\nsteps = [20, 100]\nstep_s = 2\nwatch_s = 1")
    with (
        serving_models(models, *args, **settings) as server,
        Load(server.port, names=40) as load,
    ):
        add(models, 2)
        server.wait_until(lambda: result(server, "promoted") == 1, 60)
        since = time.monotonic() + 2.5
        server.wait_until(lambda: load.versions(since)["2"] > 50, 30)
        assert load.versions(since).keys() == {"2"}
    assert load.failed() == []
    by_client = load.by_client()
    assert len(by_client) == 40
    for answers in by_client.values():
        versions = [each.version for each in answers]
        assert versions == sorted(versions)
    # The first step's, a second before the last answer of version 1.
    _, last_at = load.first_and_last_at("1")
    early = [
        answers
        for answers in by_client.values()
        if any(each.version == "2" and each.at < last_at - 1 for each in answers)
    ]
    assert 1 <= len(early) <= 20


def test_no_good_version_is_refused_or_sent_back(models):
    """Versions that differ in nothing follow one another, and no request fails."""
    configure(models, "replay = 30\nsteps = [50, 100]\nstep_s = 1\nwatch_s = 1")
    with serving_models(models) as server, Load(server.port) as load:
        for version in range(2, ROLLOUTS + 2):
            add(models, version)
            server.wait_until(lambda at=version: promoted(server, at), 120)
            assert problems(server) == "{}"
    assert load.failed() == []
    assert len(load.versions()) == ROLLOUTS + 1


@TWO_WORKERS
def test_workers_go_back_together(models, args, settings):
    """Two workers pool what they see, and both send all traffic back in a second."""
    configure(models, BLIND, STEPS.format(step_s=600))
    with serving_models(models, *args, **settings) as server, Load(server.port) as load:
        add(models, 2, RAISES_OFTEN_LATER)
        server.wait_until(lambda: load.versions()["2"] > 0, 60)
        (models.parent / "is_worse").touch()
        server.wait_until(lambda: "not promoted" in problems(server), 90)
        since = time.monotonic() + 1
        server.wait_until(lambda: load.versions(since)["1"] > 100, 30)
        assert load.versions(since).keys() <= {"1"}
        assert result(server, "sent_back") == 1


@pytest.mark.parametrize("process", ["worker", "shared"])
def test_kill_of_a_model_process_in_a_step_continues_it(models, process):
    """A new worker, or model process, joins the step without another proof."""
    configure(models, "replay = 10\nsteps = [50, 100]\nstep_s = 600")
    with serving_models(models, model_process=process) as server:
        add(models, 2)
        with Load(server.port) as load:
            server.wait_until(lambda: load.versions()["2"] > 0, 60)
        loading = re.findall(r"\[(\d+)\] \[INFO\] loading", server.log.read_text())
        pid, loaded = int(loading[-1]), server.loaded()
        os.kill(pid, signal.SIGKILL)
        server.wait_until(lambda: server.loaded() > loaded, 30)
        server.wait_until_ready()
        with Load(server.port) as load:
            server.wait_until(lambda: load.versions().keys() >= {"1", "2"}, 60)
        assert pid not in server.workers()
        assert result(server, "proven") == 1
        assert server.log.read_text().count("is compared with") == 1


def test_kill_of_the_server_in_a_step_serves_the_proven_version(models):
    """A new server begins with version 1, and proves the other one again."""
    configure(models, "replay = 10\nsteps = [50, 100]\nstep_s = 600")
    with serving_models(models) as server:
        add(models, 2)
        with Load(server.port) as load:
            server.wait_until(lambda: load.versions()["2"] > 0, 60)
        for pid in (*server.workers(), server.process.pid):
            os.kill(pid, signal.SIGKILL)
        server.process.wait(30)
    with serving_models(models) as server, Load(server.port) as load:
        server.wait_until(lambda: sum(load.versions().values()) > 20, 30)
        assert {each.version for each in load.answers[:20]} == {"1"}
        server.wait_until(lambda: load.versions()["2"] > 0, 60)


@TWO_WORKERS
def test_rollout_is_ended_and_begun_again_over_http(models, args, settings):
    """All workers follow, with another proof; `/metrics` says where it is."""
    configure(models, "replay = 10\nsteps = [50, 100]\nstep_s = 600")
    admin = {"Authorization": "Bearer admin", "Content-Type": "application/json"}
    with serving_models(models, *args, admin_keys="admin", **settings) as server:

        def share(version):
            return server.metric(
                f'basket_traffic_share{{model="m",version="{version}"}}'
            )

        def decide(verb, **body):
            path = f"/v2/repository/models/m/{verb}"
            sent = json.dumps(body).encode()
            return server.request("POST", path, sent, admin).json()

        add(models, 2)
        server.wait_until(lambda: share(2) == 0.5, 60)
        assert server.metric('basket_rollout_step{model="m",version="2"}') == 1
        assert decide("send_back", version=2, reason="labels") == {
            "name": "m",
            "sent_back": "2",
        }
        server.wait_until(
            lambda: "it was sent back by hand: labels" in problems(server), 60
        )
        with Load(server.port) as load:
            since = time.monotonic() + 2
            server.wait_until(lambda: load.versions(since)["1"] > 100, 30)
            assert load.versions(since).keys() == {"1"}
        assert decide("promote", version=2)["retried"] == "2"
        server.wait_until(lambda: share(2) == 0.5, 60)
        assert server.log.read_text().count("is compared with") == 2


def test_promotion_without_a_capture_folder_is_refused(models):
    """A new version must not serve unproven because a setting is missing."""
    with serving_code(models, "--threads=4") as server:
        configure(models, "replay = 1")
        add(models, 2)
        server.wait_until(lambda: "BASKET_CAPTURE_DIR" in problems(server), 30)
        reply = server.predict([ROW])
        assert (reply.status, reply.headers["X-Model-Version"]) == (200, "1")
