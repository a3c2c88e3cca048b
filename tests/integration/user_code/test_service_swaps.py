"""Swaps between versions that each have a service.py and a helper of one name."""

import os
import shutil
import threading
from collections import Counter

import pytest

from testing.clients import Client, in_parallel
from testing.memory import resident_mib
from testing.server import wait_until
from tests.support.user_code import add_service, serving_code

SWAPS = int(os.environ.get("SWAPS", "20"))
CLIENTS = 8
# The most of one version.
THREADS = 32
KEY = "swap"
# Much more than the memory of requests and of metrics.
VERSION_MIB = 20
CODE = """
import os
import sys
import threading
import weakref

import helpers

TABLE = bytes(range(256)) * (16 << 12)
# Functions of each version in this process, which keep all that the version has.
functions = sys.__dict__.setdefault("functions_of_versions", weakref.WeakSet())


def load(folder):
    return bytearray(4 << 20)


functions.add(load)


def preprocess(text):
    return f"{text} {helpers.LABEL}"


def predict(model, batch):
    from . import helpers as later

    labels = f"{helpers.LABEL} {later.LABEL}"
    return [[f"{text} {labels}", os.getpid(), len(functions)] for text in batch]


def postprocess(row):
    text, pid, alive = row
    # Other threads may import meanwhile.
    names = [*sys.modules]
    own = [name for name in names if "basket_service" in name or name == "helpers"]
    threads = [each for each in threading.enumerate() if each.name == "service"]
    return {
        "text": f"{text} {helpers.LABEL}",
        "modules": own,
        "threads": len(threads),
        "alive": {pid: alive, os.getpid(): len(functions)},
    }
"""


def _add(models, number):
    """Write a version whose every part names its number."""
    return add_service(models, "m", CODE, number, helpers=f"LABEL = 'v{number}'\n")


class _Clients:
    """Clients that ask as fast as they get answers; the block swaps versions."""

    def __init__(self, port):
        self._port = port
        self._over = threading.Event()
        self._thread = threading.Thread(target=in_parallel, args=(self._ask, CLIENTS))
        self.failed = []
        # By X-Model-Version.
        self.texts = Counter()
        # By process and X-Model-Version: the fewest versions in memory.
        self.alive = {}

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()

    def _ask(self, _):
        while not self._over.is_set():
            # A connection stays with one web worker.
            with Client(self._port) as client:
                for _ in range(10):
                    client.send(["say"])
                    self._take(client.receive())
                    self._over.wait(0.01)

    def _take(self, reply):
        if reply.status != 200:
            self.failed.append(reply.body)
            return
        self._add(reply.headers["X-Model-Version"], *_predictions(reply))

    def _add(self, version, prediction):
        self.texts[version, prediction["text"]] += 1
        for pid, alive in prediction["alive"].items():
            key = int(pid), int(version)
            self.alive[key] = min(alive, self.alive.get(key, alive))


def _predictions(reply):
    return reply.json()["predictions"]


def _version(server):
    return server.predict(["say"]).headers["X-Model-Version"]


def _is_alone(server):
    """Return whether nothing but one version is left in a process.

    Its helper is there, too, where predict has imported it.
    """
    (left,) = _predictions(server.predict(["say"]))
    packages = {name.partition(".")[0] for name in left["modules"]}
    return len(packages) == 1 and left["threads"] <= THREADS


def _swap_under_load(server, models):
    """Swap versions; return the memory (MiB) of each process after each swap."""
    old, held_mib = models / "m" / "1", []
    for number in range(2, SWAPS + 2):
        new = _add(models, number)
        loaded = server.request("POST", "/v2/repository/models/m/load")
        assert loaded.status == 200, loaded.body
        shutil.rmtree(old)
        old = new
        wait_until(lambda: _version(server) == str(number), 30)  # noqa: B023
        held_mib.append({pid: resident_mib(pid) for pid in server.workers()})
    return held_mib


def _least_mib(held_mib, pid):
    """Return the memory of a process when it has one version."""
    return min(held[pid] for held in held_mib)


@pytest.mark.parametrize(
    ("args", "mode"),
    [
        (["--threads=4"], "worker"),
        (["--threads=4", "--workers=2"], "shared"),
    ],
)
def test_swaps_of_service_mix_no_versions_and_keep_no_memory(tmp_path, args, mode):
    """Each part of an answer is of one version, and nothing of old ones is left."""
    _add(tmp_path, 1)
    settings = {"model_process": mode, "admin_keys": KEY}
    with serving_code(tmp_path, *args, **settings) as server:
        server.headers["Authorization"] = f"Bearer {KEY}"
        with _Clients(server.port) as clients:
            held_mib = _swap_under_load(server, tmp_path)
        wait_until(lambda: _is_alone(server), 30)
    assert clients.failed == []
    assert all(text == f"say v{v} v{v} v{v} v{v}" for v, text in clients.texts), (
        clients.texts
    )
    assert len(clients.texts) > SWAPS / 2
    tenth = SWAPS // 10
    for pid in held_mib[0]:
        alive = {v: count for (of, v), count in clients.alive.items() if of == pid}
        # A request that is just being answered may keep the version before it.
        assert min(count for v, count in alive.items() if v > SWAPS / 2) == 1, alive
        before, after = held_mib[tenth : 2 * tenth], held_mib[-tenth:]
        grown_mib = _least_mib(after, pid) - _least_mib(before, pid)
        assert grown_mib < 2.5 * VERSION_MIB, [round(held[pid]) for held in held_mib]
