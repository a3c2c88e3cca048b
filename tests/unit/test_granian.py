"""Granian's side: what is refused, and what its environ lacks."""

import logging
import os
import sys
from io import BytesIO

import pytest
from werkzeug.test import create_environ

from app import gpus, granian
from app.errors import SettingsError


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

    def start(*arguments, interface="wsgi"):
        line = ["granian", "wsgi:app", f"--interface={interface}", *arguments]
        monkeypatch.setattr(sys, "argv", line)
        monkeypatch.setattr(logging.getLogger("_granian"), "level", logging.INFO)
        granian.prepare()

    return start


def test_a_plain_start_is_taken(start):
    """One worker that speaks WSGI starts, and counts in its own memory alone."""
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


def test_another_interface_is_refused(start):
    """Without --interface wsgi, which is not Granian's default, nothing starts."""
    with pytest.raises(SettingsError, match="--interface wsgi"):
        start(interface="rsgi")


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
    ("arguments", "threads"),
    [
        (["--blocking-threads=20"], 20),
        (["--backpressure=40"], 20),
        (["--backlog=128"], 64),
    ],
)
def test_too_few_threads_are_said(start, monkeypatch, caplog, arguments, threads):
    """The number that Granian makes of its arguments is held against the batch."""
    monkeypatch.setenv("BASKET_MAX_BATCH_SIZE", "100")
    start(*arguments)
    assert f"{threads} threads can't fill a batch of 100" in caplog.text
    assert "--blocking-threads=100 or more can" in caplog.text


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


def _seen(**environ):
    """The environ that the application gets for one of Granian's."""
    seen = {}
    application = granian.CompleteEnviron(lambda given, _: seen.update(given) or [])
    granians = create_environ() | {"wsgi.input_terminated": True} | environ
    application(granians, None)
    return seen


@pytest.mark.parametrize(
    ("path", "raw"),
    [
        ("/v1/models/digits:predict", "/v1/models/digits:predict"),
        ("/v1/models/a b%:predict", "/v1/models/a%20b%25:predict"),
        ("/v1/models/\u00c3\u00a9", "/v1/models/%C3%A9"),
    ],
)
def test_the_raw_path_is_made_again(path, raw):
    """What Granian has decoded is encoded again, in front of it the mount's path."""
    assert _seen(PATH_INFO=path)["RAW_URI"] == raw
    assert _seen(SCRIPT_NAME="/v1", PATH_INFO=path)["RAW_URI"] == "/v1" + raw


def test_a_whole_body_is_read():
    """A body of the length that was announced comes as it is, and then its end."""
    body = _seen(CONTENT_LENGTH="5", **{"wsgi.input": BytesIO(b"12345")})["wsgi.input"]
    assert body.readable()
    assert body.read(3) == b"123"
    assert body.read() == b"45"
    assert body.read(1) == b""


def test_a_body_that_is_cut_off_is_no_body():
    """Fewer bytes than announced are an error, and not a shorter body."""
    body = _seen(CONTENT_LENGTH="6", **{"wsgi.input": BytesIO(b"12345")})["wsgi.input"]
    with pytest.raises(ConnectionResetError, match="it is cut off"):
        body.read()


def test_a_body_of_unknown_length_is_left_alone():
    """A body in chunks is read from Granian's own stream."""
    stream = BytesIO(b"12345")
    environ = {"wsgi.input": stream, "CONTENT_LENGTH": ""}
    assert _seen(**environ)["wsgi.input"] is stream
