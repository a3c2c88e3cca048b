"""Every undocumented name of Gunicorn's that Basket uses, against the real Gunicorn."""

import ast
import inspect
import os
from pathlib import Path
from queue import SimpleQueue

import pytest
from gunicorn.config import KNOWN_SETTINGS, Config
from gunicorn.workers.base import Worker

from tests.support.arbiter import Gunicorn

ROOT = Path(__file__).parents[3]
ARBITER = "app/rims/gunicorn_private.py"
CONFIG = "gunicorn.conf.py"
WORKER = "app/rims/worker.py"
SERVER = "app/rims/http_server.py"
HEADS = "app/rims/http_heads.py"
METHOD = "method"
# Attributes of the arbiter (class or instance), of a worker, and of the settings.
NAMES = {
    "arbiter": (
        "SIG_QUEUE",
        "WORKERS",
        "handle_ttou",
        "manage_workers",
        "master_pid",
        "murder_workers",
        "num_workers",
        "worker_age",
        "worker_class",
    ),
    "worker": ("age", "booted", "cfg", "ppid", "sockets", "tmp"),
    "cfg": ("env_orig", "worker_class_str"),
}
# What each name has to be for Basket.
KINDS = {
    "SIG_QUEUE": SimpleQueue,
    "WORKERS": dict,
    "handle_ttou": METHOD,
    "manage_workers": METHOD,
    "master_pid": int,
    "murder_workers": METHOD,
    "num_workers": int,
    "worker_age": int,
    "worker_class": type,
    "age": int,
    "booted": bool,
    "cfg": Config,
    "ppid": int,
    "sockets": list,
    "tmp": object,
    "env_orig": dict,
    "worker_class_str": str,
}
# What Gunicorn documents of the objects that its hooks get.
DOCUMENTED = {
    "arbiter": {"cfg", "log"},
    "cfg": {"set", *(setting.name for setting in KNOWN_SETTINGS)},
    "worker": {"alive", "log", "notify", "pid", "wsgi"},
}
# What Basket sets on these objects itself.
OWN = {
    "arbiter": {"basket", "basket_environ_at_start"},
    "cfg": set(),
    "worker": {
        "gpu",
        "has_siblings",
        "model_processes",
        "model_sockets",
        "slot",
    },
}
VARIABLES = {
    "server": "arbiter",
    "_server": "arbiter",
    "cfg": "cfg",
    "_cfg": "cfg",
    "worker": "worker",
}
every_name = pytest.mark.parametrize(
    ("owner", "name"), [(owner, each) for owner in NAMES for each in NAMES[owner]]
)


@pytest.fixture(name="objects")
def _objects(monkeypatch):
    """An arbiter, its configuration, and one of its workers, without Basket's hooks."""
    gunicorn = Gunicorn(monkeypatch)
    arbiter = gunicorn.arbiter(inspect.getmodule(Gunicorn))
    worker = gunicorn.spawn(arbiter)
    yield {"arbiter": arbiter, "cfg": arbiter.cfg, "worker": worker}
    gunicorn.close()


def used(file):
    """Return (owner, name) for each attribute of Gunicorn's objects in a source file.

    Objects are known by the names of variables and attributes that hold them.
    """
    found = set()
    for node in ast.walk(ast.parse((ROOT / file).read_text())):
        if isinstance(node, ast.Attribute):
            value = node.value
            holder = getattr(value, "attr", None) or getattr(value, "id", None)
            if holder in VARIABLES:
                found.add((VARIABLES[holder], node.attr))
    return found


@every_name
def test_gunicorn_has_the_undocumented_name(objects, owner, name):
    """An attribute that has moved, or has become something else, fails by its name."""
    found = getattr(objects[owner], name)
    if KINDS[name] is METHOD:
        inspect.signature(found).bind()
    else:
        assert isinstance(found, KINDS[name])


@every_name
def test_undocumented_name_is_used(owner, name):
    """A name that is not needed any more leaves the list."""
    assert any((owner, name) in used(file) for file in (ARBITER, CONFIG, WORKER))


@pytest.mark.parametrize(
    ("file", "owners"),
    # What the other three call `server` is none of Gunicorn's.
    [
        (ARBITER, tuple(NAMES)),
        (CONFIG, tuple(NAMES)),
        (WORKER, ("cfg",)),
        (SERVER, ("cfg",)),
        (HEADS, ("cfg",)),
    ],
    ids=[ARBITER, CONFIG, WORKER, SERVER, HEADS],
)
def test_no_other_undocumented_name_is_used(file, owners):
    """Each attribute of Gunicorn's objects is documented, listed, or Basket's own."""
    allowed = {
        (owner, name)
        for owner in owners
        for name in (*NAMES[owner], *DOCUMENTED[owner], *OWN[owner])
    }
    found = {(owner, name) for owner, name in used(file) if owner in owners}
    assert found - allowed == set()


def test_arbiter_makes_workers_by_calling_its_worker_class(objects):
    """A callable in the place of the class gets what the class would get."""
    arbiter, calls = objects["arbiter"], []

    def worker_class(*args):
        calls.append(args)
        return Worker(*args)

    arbiter.worker_class = worker_class
    worker = Gunicorn.spawn(arbiter)
    (args,) = calls
    assert args[:2] == (worker.age, os.getpid())
    assert args[5:] == (arbiter.cfg, arbiter.log)


def test_arbiter_ends_the_worker_of_the_lowest_age(objects, monkeypatch):
    """Of too many workers the oldest one ends, and ages grow by one."""
    arbiter, killed = objects["arbiter"], []
    oldest, next_one = objects["worker"], Gunicorn.spawn(arbiter)
    assert next_one.age == arbiter.worker_age == oldest.age + 1
    monkeypatch.setattr(os, "kill", lambda pid, _: killed.append(pid))
    arbiter.num_workers = 1
    arbiter.manage_workers()
    assert killed == [oldest.pid]


def test_heartbeat_file_is_empty_and_shared_with_the_arbiter(objects):
    """Its size is free to say that a worker listens; a heartbeat sets only its time."""
    worker = objects["worker"]
    worker.notify()
    assert os.fstat(worker.tmp.fileno()).st_size == 0
    before = worker.tmp.last_update()
    os.ftruncate(worker.tmp.fileno(), 1)
    worker.notify()
    assert worker.tmp.last_update() >= before
