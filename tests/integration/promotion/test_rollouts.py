"""New versions under load: the good takes over, the bad goes back by itself."""

import json
import math
import os
import signal
import threading
import time
from collections import Counter
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
NOT_A_NUMBER = """
    for each in rows.values():
        for row in each:
            if chance.random() < 0.01:
                row[0] = np.nan
"""
SLOW = """
    time.sleep(0.02)
"""
# Once there is a file beside the folder of models.
LATER = 'os.path.exists(__file__.split("/models/")[0] + "/is_worse")'
SLOW_LATER = f"""
    if {LATER}:
        time.sleep(0.3)
"""
CRASHES_LATER = f"""
    if {LATER}:
        os.kill(os.getpid(), 9)
"""
RAISES_LATER = f"""
    if {LATER} and chance.random() < 0.3:
        raise ValueError("three of ten")
"""
RAISES = """
    if chance.random() < 0.02:
        raise ValueError("two of a hundred")
"""
LEAKS = """
    leaked.append(np.ones(50 << 20, np.uint8))
"""
# Rows for the proof that can't tell, so that only the traffic does.
BLIND = "replay = 1\nmin_agreement = 0"
STEPS = "steps = [20, 100]\nstep_s = {step_s}\nwatch_s = 60"
# After enough evidence, a version is back.
WITHIN_S = 5
# Two of the server's looks.
LASTS_S = 0.5
MODEL = {"base_ms": 10, "per_row_ms": 0, "input_shape": [3], "outputs": 3}
ROW = [0.1, 0.7, 0.2]


class Answer(NamedTuple):
    at: float
    status: int
    version: str
    body: bytes


def add(models, number, fault=NONE):
    """Write a version that returns its rows after 10 ms, but for the fault."""
    code = GOOD.replace("{fault}", fault)
    if "leaked" in fault:
        code = code.replace("chance =", "leaked = []\nchance =")
    add_service(models, "m", code, number, simulated=MODEL)


def configure(models, *lines):
    (models / "m").mkdir(parents=True, exist_ok=True)
    (models / "m" / "basket.toml").write_text("\n".join(["[promotion]", *lines]))


class Load:
    """Clients without think time, and what each answer was."""

    def __init__(self, port):
        self._port = port
        self._over = threading.Event()
        self._thread = threading.Thread(target=in_parallel, args=(self._ask, CLIENTS))
        self.answers = []

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()

    def _ask(self, _):
        while not self._over.is_set():
            with Client(self._port) as client:
                try:
                    self._ask_on(client)
                except (ConnectionError, HTTPException) as error:
                    text = repr(error).encode()
                    self.answers.append(Answer(time.monotonic(), 0, "", text))

    def _ask_on(self, client):
        """Ask until the end, or raise where the connection ends."""
        while not self._over.is_set():
            client.send([ROW])
            reply = client.receive()
            version = reply.headers.get("X-Model-Version", "")
            now = time.monotonic()
            self.answers.append(Answer(now, reply.status, version, reply.body))

    def versions(self, since=0.0):
        return Counter(each.version for each in self.answers[:] if each.at >= since)

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
        (SHUFFLED, "agree"),
        (SLOW, "times as long"),
        (LEAKS, "leaks about "),
    ],
    ids=["shuffled", "slow", "leaking"],
)
def test_version_that_fails_its_proof_answers_nobody(models, fault, reason):
    """The version before serves every request, and the reason is shown."""
    configure(models, "replay = 30", STEPS.format(step_s=1))
    with serving_models(models) as server, Load(server.port) as load:
        add(models, 2, fault)
        server.wait_until(lambda: "not promoted" in problems(server), 120)
        assert reason in problems(server)
        assert result(server, "refused") == 1
    assert set(load.versions()) == {"1"}
    assert load.failed() == []


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (NOT_A_NUMBER, "NaN in"),
        (SLOW_LATER, "max_slowdown"),
        (RAISES, "500, 504 or 507 for"),
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
        versions = load.versions()
        assert load.versions(back_at).keys() <= {"1"}
    observer.join(WITHIN_S)
    last_at = max(each.at for each in load.answers if each.version == "2")
    assert last_at < observer.enough_at + WITHIN_S < math.inf
    share = versions["2"] / sum(versions.values())
    assert share < 0.25
    assert all(
        b"two of a hundred" in body or b"ValueError" in body for body in load.failed()
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
    """No request fails, and it has all traffic in the end."""
    configure(models, "replay = 30\nsteps = [20, 100]\nstep_s = 2\nwatch_s = 1")
    with serving_models(models, *args, **settings) as server, Load(server.port) as load:
        add(models, 2)
        server.wait_until(lambda: result(server, "promoted") == 1, 60)
        since = time.monotonic() + 2.5
        server.wait_until(lambda: load.versions(since)["2"] > 50, 30)
        assert load.versions(since).keys() == {"2"}
    assert load.failed() == []


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


def test_workers_go_back_together(models):
    """Two workers pool what they see, and both send all traffic back."""
    configure(models, BLIND, STEPS.format(step_s=600))
    args = "--threads=4", "--workers=2"
    with serving_models(models, *args) as server, Load(server.port) as load:
        add(models, 2, RAISES_LATER)
        server.wait_until(lambda: load.versions()["2"] > 0, 60)
        (models.parent / "is_worse").touch()
        server.wait_until(lambda: "not promoted" in problems(server), 90)
        since = time.monotonic() + 1.5
        server.wait_until(lambda: load.versions(since)["1"] > 100, 30)
        assert load.versions(since).keys() <= {"1"}
        assert result(server, "sent_back") == 1


@pytest.mark.parametrize("victim", ["worker", "server"])
def test_kill_in_a_step_serves_the_proven_version(models, victim):
    """A new worker joins the step; a new server begins with version 1."""
    configure(models, "replay = 10\nsteps = [50, 100]\nstep_s = 600")
    with serving_models(models) as server:
        add(models, 2)
        with Load(server.port) as load:
            server.wait_until(lambda: load.versions()["2"] > 0, 60)
        if victim == "worker":
            (pid,) = server.workers()
            os.kill(pid, signal.SIGKILL)
            server.wait_until(lambda: server.workers() not in ([], [pid]), 30)
            server.wait_until_ready()
            with Load(server.port) as load:
                server.wait_until(lambda: load.versions().keys() == {"1", "2"}, 60)
            assert result(server, "proven") == 1
            return
        for pid in (*server.workers(), server.process.pid):
            os.kill(pid, signal.SIGKILL)
        server.process.wait(30)
    with serving_models(models) as server, Load(server.port) as load:
        server.wait_until(lambda: sum(load.versions().values()) > 20, 30)
        assert {each.version for each in load.answers[:20]} == {"1"}
        server.wait_until(lambda: load.versions()["2"] > 0, 60)


def test_promotion_without_a_capture_folder_is_refused(models):
    """A new version must not serve unproven because a setting is missing."""
    with serving_code(models, "--threads=4") as server:
        configure(models, "replay = 1")
        add(models, 2)
        server.wait_until(lambda: "BASKET_CAPTURE_DIR" in problems(server), 30)
        reply = server.predict([ROW])
        assert (reply.status, reply.headers["X-Model-Version"]) == (200, "1")
