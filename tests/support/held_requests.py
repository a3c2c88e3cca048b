"""Requests that stay in flight until a test releases them, in any process."""

import threading
import time
from collections.abc import Callable, Collection
from http import HTTPStatus
from pathlib import Path

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
    """Sixteen requests for the model `held`, and more until each process has one."""

    def __init__(self, folder: Path, request: Callable[..., Reply]) -> None:
        """Store where the model writes, and what sends a request."""
        self._folder, self._request = folder, request
        self._threads: list[threading.Thread] = []
        self._sent_at = 0.0
        self._replies: list[tuple[float, Reply]] = []

    @staticmethod
    def add_model(models: Path, folder: Path) -> None:
        """Add the model to a folder of models; it writes into another one."""
        add_service(models, _MODEL, _SERVICE.format(folder=str(folder)))

    def __enter__(self) -> "HeldRequests":
        for each in self._folder.iterdir():
            each.unlink()
        for _ in range(_CLIENTS):
            self._send()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
        for thread in self._threads:
            thread.join()

    def wait_for(self, pids: Collection[int], within_s: float) -> None:
        """Wait until each of these processes holds a request.

        A router that hears late from one of them sends all requests of that moment to
        the others, so one more is sent each second.
        """
        names = set(map(str, pids))

        def are_held() -> bool:
            if names <= {each.name for each in self._folder.iterdir()}:
                return True
            if time.monotonic() > self._sent_at + 1:
                self._send()
            return False

        wait_until(are_held, within_s)

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

    def _send(self) -> None:
        self._sent_at = time.monotonic()
        self._threads.append(threading.Thread(target=self._client))
        self._threads[-1].start()

    def _client(self) -> None:
        body = b'{"instances": [1]}'
        reply = self._request("POST", f"/predict?model={_MODEL}", body)
        self._replies.append((time.monotonic(), reply))
