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

SWAPS = int(os.environ.get("SWAPS", "50"))
CLIENTS = 8
KEY = "swap"
# So that a version that is never let go shows in the memory.
VERSION_MIB = 20
CODE = """
import sys

import helpers

TABLE = bytes(range(256)) * (16 << 12)


def load(folder):
    return bytearray(4 << 20)


def preprocess(text):
    return f"{text} {helpers.LABEL}"


def predict(model, batch):
    from . import helpers as later

    return [f"{text} {helpers.LABEL} {later.LABEL}" for text in batch]


def postprocess(row):
    own = [name for name in sys.modules if "basket_service" in name]
    own += [name for name in sys.modules if name == "helpers"]
    return [f"{row} {helpers.LABEL}", own]
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

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()

    def _ask(self, _):
        with Client(self._port) as client:
            while not self._over.wait(0.01):
                client.send(["say"])
                reply = client.receive()
                if reply.status != 200:
                    self.failed.append(reply.body)
                    continue
                ((text, _),) = reply.json()["predictions"]
                self.texts[reply.headers["X-Model-Version"], text] += 1


def _ask(server):
    """Return the version that answers, and the modules of service.py there."""
    reply = server.predict(["say"])
    ((_, modules),) = reply.json()["predictions"]
    return reply.headers["X-Model-Version"], modules


def _is_alone(modules):
    """Return whether modules are of one service.py."""
    return len({name.partition(".")[0] for name in modules}) == 1


@pytest.mark.parametrize(
    ("args", "mode"),
    [
        (["--threads=4"], "worker"),
        (["--threads=4", "--workers=2"], "shared"),
    ],
)
def test_swaps_of_service_mix_no_versions_and_keep_no_memory(tmp_path, args, mode):
    """Each part of an answer is of one version, and nothing of old ones is left."""
    old = _add(tmp_path, 1)
    settings = {"model_process": mode, "admin_keys": KEY}
    with serving_code(tmp_path, *args, **settings) as server:
        server.headers["Authorization"] = f"Bearer {KEY}"
        held_mib = {}
        with _Clients(server.port) as clients:
            for number in range(2, SWAPS + 2):
                new = _add(tmp_path, number)
                loaded = server.request("POST", "/v2/repository/models/m/load")
                assert loaded.status == 200, loaded.body
                shutil.rmtree(old)
                old = new

                version = str(number)
                wait_until(lambda: _ask(server)[0] == version, 30)  # noqa: B023
                held_mib[number - 1] = sum(map(resident_mib, server.workers()))
        # Its helper, too, where predict has imported it.
        wait_until(lambda: _is_alone(_ask(server)[1]), 30, lambda: _ask(server)[1])
    assert clients.failed == []
    assert all(text == f"say v{v} v{v} v{v} v{v}" for v, text in clients.texts), (
        clients.texts
    )
    assert len(clients.texts) > SWAPS / 2
    grown_mib = held_mib[SWAPS] - held_mib[SWAPS // 5]
    # Several versions per process wait for a collection. A single process that let go
    # of none would have grown by all of it.
    assert grown_mib < 0.5 * VERSION_MIB * (SWAPS - SWAPS // 5), held_mib
