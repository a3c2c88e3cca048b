"""Readiness of real servers with several processes, some of whose models fail."""

import os
import shutil
import signal

import pytest

from testing.server import serving, simulated_models

ECHO = {"base_ms": 0, "input_shape": [2], "outputs": 2}
BROKEN = {"outputs": 0}
# Each request is a connection of its own, which any of the workers accepts.
ASKED = 20


def _statuses(server):
    """Return what the workers answer, each several times."""
    paths = ("/readyz", "/v2/health/ready")
    return {server.request("GET", path).status for path in paths * ASKED}


def _replaced(server, signal_number, pids):
    """End workers, or reload them by their master, and wait for the new ones."""
    old, loaded = set(server.workers()), server.loaded()
    for pid in pids:
        os.kill(pid, signal_number)
    server.wait_until(
        lambda: server.loaded() >= loaded + 2 and not old & set(server.workers()), 60
    )
    server.wait_until_ready()


@pytest.mark.parametrize("model_process", ["worker", "shared"])
def test_failed_model_leaves_all_processes_ready(tmp_path, model_process):
    """Also those that start later; one that has served and is gone does not."""
    simulated_models(tmp_path, a=ECHO, b=ECHO, bad=BROKEN)
    options = {"model_dir": str(tmp_path), "model_process": model_process}
    with serving("--workers=2", "--threads=2", default_model="a", **options) as server:
        simulated_models(tmp_path, worse=BROKEN)

        def missing():
            return server.request("GET", "/readyz").json().get("not_ready", {})

        server.wait_until(lambda: list(missing()) == ["bad", "worse"], 30)
        assert _statuses(server) == {200}
        _replaced(server, signal.SIGKILL, server.workers())
        assert _statuses(server) == {200}
        _replaced(server, signal.SIGHUP, [server.process.pid])
        assert _statuses(server) == {200}
        shutil.rmtree(tmp_path / "b" / "1")
        server.wait_until(lambda: _statuses(server) == {503}, 30)
        (tmp_path / "b").rmdir()
        server.wait_until(lambda: _statuses(server) == {200}, 30)
