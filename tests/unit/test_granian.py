"""Granian's side: what a start refuses, and what it says."""

import logging
import os
import sys

import pytest

from app import gpus
from app.errors import SettingsError
from app.granian.start import prepare


@pytest.fixture(name="start")
def _start(monkeypatch, tmp_path):
    """Prepare as in a worker of `granian *arguments`, with a clean environment."""
    for name in list(os.environ):
        if name.startswith(("BASKET_", "CUDA_", "GRANIAN_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("BASKET_MODEL_DIR", str(tmp_path))
    for name in ("PROMETHEUS_MULTIPROC_DIR", "CUDA_VISIBLE_DEVICES"):
        # What is set or taken away meanwhile is undone at the end.
        monkeypatch.setenv(name, "")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr(logging.getLogger("app"), "handlers", [])
    monkeypatch.setattr(logging.getLogger("app"), "level", logging.NOTSET)

    def start(*arguments, interface="rsgi"):
        line = ["granian", "wsgi:app", f"--interface={interface}", *arguments]
        monkeypatch.setattr(sys, "argv", line)
        monkeypatch.setattr(logging.getLogger("_granian"), "level", logging.INFO)
        prepare()

    yield start
    # Loggers remember what they are enabled for.
    logging.getLogger("app").setLevel(logging.NOTSET)


def test_a_plain_start_is_taken(start):
    """One worker that speaks RSGI starts, and counts in its own memory alone."""
    start()
    assert "PROMETHEUS_MULTIPROC_DIR" not in os.environ


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--workers=2"], "--workers 2: with Granian it is 1"),
        (["--workers-kill-timeout=2s"], "takes 3 s or more"),
    ],
)
def test_arguments_that_can_not_be_are_refused(start, arguments, text):
    """More workers, or too little time for a stop, are refused by name."""
    with pytest.raises(SettingsError, match=text):
        start(*arguments)


@pytest.mark.parametrize("interface", ["wsgi", "asgi"])
def test_another_interface_is_refused(start, interface):
    """With an interface that is not Granian's own and its default, nothing starts."""
    with pytest.raises(SettingsError, match=f"--interface {interface}: .* rsgi alone"):
        start(interface=interface)


def test_granians_level_is_the_logs(start):
    """Granian's level counts from the start on, whatever was asked before."""
    log = logging.getLogger("app.serving.loader")
    assert not log.isEnabledFor(logging.INFO)
    start()
    assert log.isEnabledFor(logging.INFO)


def test_granians_own_variables_count(start, monkeypatch):
    """An argument that stands in the environment is refused likewise."""
    monkeypatch.setenv("GRANIAN_WORKERS", "3")
    with pytest.raises(SettingsError, match="--workers 3"):
        start()


def test_another_way_to_start_is_refused(start):
    """A command line that is not Granian's can't be checked, and is refused."""
    with pytest.raises(SettingsError, match="its own command"):
        start("--port=many")


def test_a_shared_model_process_is_refused(start, monkeypatch):
    """BASKET_MODEL_PROCESS=shared is refused, as nobody would start that process."""
    monkeypatch.setenv("BASKET_MODEL_PROCESS", "shared")
    with pytest.raises(SettingsError, match="want Gunicorn"):
        start()


@pytest.mark.parametrize(
    ("arguments", "connections"),
    [(["--backpressure=40"], 40), (["--backlog=150"], 150)],
)
def test_too_few_connections_are_said(
    start, monkeypatch, caplog, arguments, connections
):
    """The number that Granian makes of its arguments is held against the batch."""
    monkeypatch.setenv("BASKET_MAX_BATCH_SIZE", "200")
    start(*arguments)
    assert f"{connections} connections can't fill a batch of 200" in caplog.text
    assert "--backpressure=200 or more can" in caplog.text


def test_a_misspelt_setting_is_a_warning(start, monkeypatch, caplog):
    """A BASKET_ variable that is no setting is named in the log."""
    monkeypatch.setenv("BASKET_ENGIN", "tensorflow")
    start()
    assert "did you mean BASKET_ENGINE?" in caplog.text


def test_the_worker_sees_the_first_gpu_that_is_wanted(start, monkeypatch):
    """Of two GPUs the worker uses the one that BASKET_GPUS names first."""
    there = (gpus.Gpu(0, "GPU-a", 8192), gpus.Gpu(1, "GPU-b", 8192))
    monkeypatch.setattr(gpus, "visible", lambda: there)
    monkeypatch.setenv("BASKET_GPUS", "1,0")
    start()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"
