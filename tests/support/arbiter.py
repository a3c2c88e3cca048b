"""Gunicorn's real arbiter with Basket's configuration, never started.

The hooks can be called one by one, and workers are made as the arbiter makes them, but
for the fork.
"""

import importlib.util
import itertools
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter

_CONFIG = Path(__file__).parents[2] / "gunicorn.conf.py"
_PIDS = itertools.count(1 << 30)


def read_config() -> ModuleType:
    """Return gunicorn.conf.py as a new module."""
    spec = importlib.util.spec_from_file_location("gunicorn_conf", _CONFIG)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class _Application(BaseApplication):
    """An application that Gunicorn configures with a module and arguments."""

    def __init__(self, module: ModuleType, arguments: dict[str, Any]) -> None:
        self._settings = {**vars(module), **arguments}
        super().__init__()

    def load_config(self) -> None:
        for name, value in self._settings.items():
            if name in self.cfg.settings:
                self.cfg.set(name, value)


class Gunicorn:
    """Arbiters for one test; each has workers of its own."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._made: list[Arbiter] = []
        # The arbiter sets it.
        patch.setenv("SERVER_SOFTWARE", "")
        patch.setattr(os, "fork", lambda: next(_PIDS))

    def arbiter(self, module: ModuleType | None = None, **arguments: Any) -> Arbiter:
        """Return an arbiter that has read gunicorn.conf.py and these arguments."""
        arbiter = Arbiter(_Application(module or read_config(), arguments))
        arbiter.pid = os.getpid()
        # The class has one for all.
        arbiter.WORKERS = {}
        # For caplog.
        arbiter.log.error_log.handlers.clear()
        arbiter.log.error_log.propagate = True
        self._made.append(arbiter)
        return arbiter

    @staticmethod
    def spawn(arbiter: Arbiter) -> Any:
        """Return the next worker, which has no process."""
        return arbiter.WORKERS[arbiter.spawn_worker()]

    @staticmethod
    def reload(arbiter: Arbiter) -> None:
        """Read the configuration again as at a HUP, and make no worker."""
        arbiter.app.reload()
        arbiter.setup(arbiter.app)
        arbiter.cfg.on_reload(arbiter)

    def close(self) -> None:
        for arbiter in self._made:
            for worker in arbiter.WORKERS.values():
                worker.tmp.close()
