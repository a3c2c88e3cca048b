"""How Gunicorn starts with Basket's configuration: what it refuses, logs and leaves."""

import os
import re
import signal
import time
from importlib.util import find_spec
from pathlib import Path

import gunicorn
import pytest

from testing.server import (
    ROOT,
    free_port,
    installed,
    lives,
    running,
    serving,
    simulated_models,
    wait_until,
)
from tests.support import worker_classes

QUICK = {"base_ms": 1, "per_row_ms": 0, "input_shape": [2], "outputs": 2}
ROWS = [[1.0, 2.0]]
FILE = __file__
# From 27 on Gunicorn itself refuses HTTP/2 if the package for it is missing.
needs_h2 = pytest.mark.skipif(
    gunicorn.version_info >= (27,) and find_spec("h2") is None, reason="needs h2"
)

LOG_CONFIG = """
[loggers]
keys=root,gunicorn.error
[handlers]
keys=console
[formatters]
keys=plain
[logger_root]
level=INFO
handlers=console
[logger_gunicorn.error]
level=INFO
handlers=
propagate=1
qualname=gunicorn.error
[handler_console]
class=StreamHandler
formatter=plain
args=(sys.stderr,)
[formatter_plain]
format=ROOT %(name)s %(message)s
"""


@pytest.fixture(name="models")
def _models(tmp_path):
    return simulated_models(tmp_path / "models", quick=QUICK)


@pytest.fixture(name="temporary")
def _temporary(tmp_path_factory, monkeypatch):
    """A folder for all temporary files of a server."""
    folder = tmp_path_factory.mktemp("t")
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.mark.parametrize(
    ("arguments", "settings", "text"),
    [
        (["--preload"], {}, "--preload: a model does not survive the fork"),
        (
            [],
            {"max_batch_size": "lots"},
            "BASKET_MAX_BATCH_SIZE='lots': expected a whole number",
        ),
        (
            [],
            {"model_dir": "/none"},
            "BASKET_MODEL_DIR='/none': there is no such folder",
        ),
        (
            [f"--worker-tmp-dir={FILE}"],
            {},
            f"--worker-tmp-dir='{FILE}': Not a directory",
        ),
    ],
    ids=lambda each: each[0] if isinstance(each, list) and each else None,
)
def test_configuration_error_stops_the_start(
    models, temporary, arguments, settings, text
):
    """The log names the setting without a traceback, and no temporary file is left."""
    options = {"model_dir": models, **settings}
    with serving(*arguments, ready=False, **options) as server:
        _assert_refused(server, text)
    assert not list(temporary.glob("basket-*"))


def _assert_refused(server, text):
    """Wait until the server has ended, with a line that says why."""
    assert server.process.wait(60) == 1
    log = server.log.read_text()
    assert "Basket does not start: " in log
    assert text in log
    assert "Traceback" not in log


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (
            {"model": "no.keras"},
            "BASKET_MODEL='no.keras': No such file or directory; expected a .keras",
        ),
        (
            {"model": str(FILE)},
            f"BASKET_MODEL='{FILE}': it is another file; expected a",
        ),
        ({"model": "models/digits", "model_dir": "models"}, "are both set: keep one"),
        (
            {"model": "models/digits/1/.keras"},
            "'.keras' can't be the name of a model: set BASKET_MODEL_NAME",
        ),
    ],
)
def test_wrong_single_model_stops_the_start(settings, text):
    """The log says what is wrong and what is expected."""
    with serving(ready=False, **settings) as server:
        _assert_refused(server, text)


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        ("--proxy-protocol=v1", "--proxy-protocol: Basket speaks plain HTTP; "),
        pytest.param(
            "--http-protocols=h2,h1",
            "--http-protocols: Basket speaks HTTP/1.1; ",
            marks=needs_h2,
        ),
        ("--http2-cleartext=upgrade", "--http-protocols: Basket speaks HTTP/1.1; "),
        (
            "--http2-cleartext=prior-knowledge",
            "--http-protocols: Basket speaks HTTP/1.1; ",
        ),
    ],
)
def test_refused_protocol_names_nginx(models, temporary, argument, text):
    """The log says which server in front speaks the protocol."""
    with serving(argument, ready=False, model_dir=models) as server:
        _assert_refused(server, f"{text}put nginx in front (")
    assert not list(temporary.glob("basket-*"))


def test_unwritable_metrics_folder_stops_the_start(models, temporary, monkeypatch):
    """A file in a folder's place is named with the variable, and nothing is left."""
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", f"{FILE}/metrics")
    with serving(ready=False, model_dir=models) as server:
        assert server.process.wait(60) == 1
        text = f"PROMETHEUS_MULTIPROC_DIR='{FILE}/metrics': Not a directory"
        assert text in server.log.read_text()
    assert not list(temporary.glob("basket-*"))


@pytest.mark.parametrize("is_set", [True, False], ids=["set", "empty"])
def test_start_removes_no_file_but_the_metrics_of_the_server_before(
    models, tmp_path, monkeypatch, is_set
):
    """Other databases in PROMETHEUS_MULTIPROC_DIR stay; empty means the default."""
    names = ("customers.db", "counter_7.db", "gauge_livesum_7.db")
    for name in names:
        (tmp_path / name).write_bytes(b"SQLite format 3")
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path) if is_set else "")
    with serving(model_dir=models) as server:
        server.predict(ROWS)
        assert server.metric('basket_batch_rows_sum{model="quick",version="1"}') == 1
    left = [each for each in names if (tmp_path / each).exists()]
    assert left == (["customers.db"] if is_set else list(names))
    assert not list(Path().glob("*.db"))


def test_log_of_a_log_config_has_the_lines_of_basket(models, tmp_path):
    """Where Gunicorn's log goes to the root logger, so do lines about models."""
    config = tmp_path / "log.ini"
    config.write_text(LOG_CONFIG)
    arguments = ("--log-config", str(config))
    with serving(*arguments, model_dir=models) as server:
        log = server.log.read_text()
    assert "ROOT gunicorn.error Starting gunicorn" in log
    assert "ROOT app.repository" in log


def test_misspelled_setting_is_a_warning(models):
    """A BASKET_ variable that is no setting is named in the log, with the nearest."""
    with serving(model_dir=models, max_batchsize="8") as server:
        log = server.log.read_text()
        assert "[WARNING]" in log
        assert "did you mean BASKET_MAX_BATCH_SIZE?" in log


SITE = """
import sys, sysconfig
sysconfig.get_config_vars()["CONFIG_ARGS"] = {options!r}
sys.base_prefix = "/opt/python"
"""


@pytest.mark.parametrize("options", ["", "--enable-optimizations"])
def test_python_without_optimizations_is_said(models, tmp_path, monkeypatch, options):
    """The log names a Python on which requests take longer, and no other one."""
    (tmp_path / "sitecustomize.py").write_text(SITE.format(options=options))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with serving(model_dir=models) as server:
        log = server.log.read_text()
    assert ("was compiled without --enable-optimizations" in log) == (not options)


@pytest.mark.parametrize("worker_class", worker_classes.ALL)
def test_shared_folder_outlasts_workers_and_goes_with_the_server(
    models, tmp_path, monkeypatch, worker_class
):
    """It is in --worker-tmp-dir; a worker that exits leaves it, the master does not."""
    monkeypatch.delenv("PROMETHEUS_MULTIPROC_DIR", raising=False)
    argument = f"--worker-tmp-dir={tmp_path}"
    with serving(argument, *worker_class, model_dir=models) as server:
        server.predict(ROWS)
        (worker,) = server.workers()
        os.kill(worker, signal.SIGTERM)
        wait_until(lambda: server.loaded() == 2, 30)
        (folder,) = tmp_path.glob("basket-*")
        assert list((folder / "metrics").glob("*.db"))
        server.wait_until_ready()
        assert server.metric('basket_batch_rows_sum{model="quick",version="1"}') == 1
    assert not list(tmp_path.glob("basket-*"))


@pytest.fixture(name="waiting")
def _waiting(models):
    """Two workers, of which the second waits for the folder of models."""
    with serving("--workers=2", "--timeout=2", model_dir=models) as server:
        wait_until(lambda: server.loaded() == 2, 60)
        away = Path(models).with_name("away")
        Path(models).rename(away)
        os.kill(server.workers()[0], signal.SIGKILL)
        wait_until(lambda: f"waits for {models}" in server.log.read_text(), 60)
        yield server


def test_worker_that_waits_for_the_model_folder_has_a_heartbeat(waiting, models):
    """It is not killed after --timeout, and logs once why it waits."""
    workers = waiting.workers()
    time.sleep(5)
    assert waiting.workers() == workers
    log = waiting.log.read_text()
    assert log.count(f"waits for {models}") == 1
    assert "WORKER TIMEOUT" not in log
    assert waiting.predict(ROWS).status == 200


def test_sigterm_ends_a_worker_that_waits_for_the_model_folder(waiting):
    """The server does not take its graceful timeout of 30 s."""
    assert waiting.stop(timeout_s=15) == 0


def test_worker_that_waits_for_the_model_folder_ends_with_its_master(waiting):
    """After kill -9 of the master no worker is left."""
    workers = waiting.workers()
    waiting.process.kill()
    waiting.process.wait()
    wait_until(lambda: not any(map(lives, workers)), 60)


@pytest.mark.parametrize("process", ["worker", "shared"])
def test_log_says_once_where_to_open_the_page_when_models_are_loaded(models, process):
    """Not again for a second worker, nor for one that replaces the first."""
    arguments = "--workers=2", "--threads=2", "--bind=[::]:0"
    with serving(*arguments, model_dir=models, model_process=process) as server:
        line = f" open http://127.0.0.1:{server.port} in a browser"
        server.wait_until(lambda: line in server.log.read_text(), 30)
        loaded = server.loaded()
        for pid in server.workers():
            os.kill(pid, signal.SIGKILL)
        server.wait_until(lambda: server.loaded() >= loaded + 2, 30)
        log = server.log.read_text()
        assert log.count(" in a browser") == log.count(line) == 1
        assert log.index(server.loaded_line) < log.index(line)


@pytest.mark.parametrize(
    ("bind", "shown"),
    [
        ("0.0.0.0:{port}", ["http://127.0.0.1:{port}"]),
        ("[::1]:{port}", ["http://[::1]:{port}"]),
        ("unix:{folder}/socket", []),
    ],
)
def test_address_to_open_is_one_of_this_machine(models, tmp_path, bind, shown):
    """All addresses are shown as loopback; a browser can't open a Unix socket."""
    port = free_port()
    bind = f"--bind={bind.format(port=port, folder=tmp_path)}"
    command = [installed("gunicorn"), "wsgi:app", bind]
    with running(command, port, ready=False, model_dir=models) as server:

        def found():
            return re.findall(r" open (\S+) in a browser", server.log.read_text())

        server.wait_until(lambda: server.loaded() == 1, 30)
        wanted = [each.format(port=port) for each in shown]
        server.wait_until(lambda: found() == wanted, 30)


@pytest.mark.parametrize("setting", ["model_dir", "model"])
def test_log_begins_with_the_absolute_path_that_is_served(models, setting):
    """A relative one does not say which of several folders it is in."""
    path = Path(models) / "quick" if setting == "model" else Path(models)
    with serving(**{setting: os.path.relpath(path, ROOT)}) as server:
        gunicorn_line, line, *_ = server.log.read_text().splitlines()
        assert "Starting gunicorn" in gunicorn_line
        assert line.endswith(f" serving {path}")
