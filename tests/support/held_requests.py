"""Requests that stay in flight until a test releases them, in any process."""

import threading
import time
from collections.abc import Callable, Collection
from http import HTTPStatus
from pathlib import Path

from testing.clients import in_parallel
from testing.server import Reply, wait_until
from tests.support.user_code import add_service

_MODEL = "held"
_CLIENTS = 16
_RELEASED = "released"
# Returns the id of its process.
_SERVICE = """
import os
import threading
from pathlib import Path

FOLDER = Path({folder!r})


def predict(model, batch):
    (FOLDER / str(os.getpid())).touch()
    while not (FOLDER / "released").exists():
        threading.Event().wait(0.02)
    return [os.getpid() for _ in batch]
"""


class HeldRequests:
    """Sixteen requests for the model `held`, sent at once."""

    def __init__(self, folder: Path, request: Callable[..., Reply]) -> None:
        """Store where the model writes, and what sends a request."""
        self._folder, self._request = folder, request
        self._thread = threading.Thread(
            target=in_parallel, args=(self._client, _CLIENTS)
        )
        self._replies: list[tuple[float, Reply]] = []

    @staticmethod
    def add_model(models: Path, folder: Path) -> None:
        """Add the model to a folder of models; it writes into another one."""
        add_service(models, _MODEL, _SERVICE.format(folder=str(folder)))

    def __enter__(self) -> "HeldRequests":
        for each in self._folder.iterdir():
            each.unlink()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
        self._thread.join()

    def wait_for(self, pids: Collection[int], within_s: float) -> None:
        """Wait until each of these processes holds a request."""
        names = set(map(str, pids))
        wait_until(
            lambda: names <= {each.name for each in self._folder.iterdir()}, within_s
        )

    def release(self) -> None:
        """Let all be answered."""
        (self._folder / _RELEASED).touch()

    def answered_by(self) -> set[int]:
        """Return the ids of the processes that have answered with 200."""
        return {
            reply.json()["predictions"][0]
            for _, reply in self._replies
            if reply.status == HTTPStatus.OK
        }

    def failed_at(self) -> list[float]:
        """Return when the others were answered, by the monotonic clock."""
        return [
            ended_at
            for ended_at, reply in self._replies
            if reply.status != HTTPStatus.OK
        ]

    def _client(self, _: int) -> None:
        body = b'{"instances": [1]}'
        reply = self._request("POST", f"/predict?model={_MODEL}", body)
        self._replies.append((time.monotonic(), reply))
