"""Versions with a service.py, and a neighbor that must not notice them."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from testing.server import Server, serving, simulated_models, wait_until
from tests.support.traffic import Traffic

# A model of one number, which it returns.
ECHO = {"base_ms": 0, "input_shape": [1], "outputs": 1}


def add_service(
    models: Path, name: str, code: str, version: int = 1, **files: Any
) -> Path:
    """Write a version with this service.py, complete from the start.

    `files` are others by their stems: text, a Keras model, or the values of a .json.
    """
    hidden = models / f".{name}-{version}"
    hidden.mkdir(parents=True)
    (hidden / "service.py").write_text(code)
    for stem, content in files.items():
        if isinstance(content, str):
            (hidden / f"{stem}.py").write_text(content)
        elif hasattr(content, "save"):
            content.save(hidden / f"{stem}.keras")
        else:
            (hidden / f"{stem}.json").write_text(json.dumps(content))
    (models / name).mkdir(exist_ok=True)
    return hidden.rename(models / name / str(version))


def serving_code(
    models: Path, *args: str, **settings: str
) -> contextlib.AbstractContextManager[Server]:
    """Serve a folder of models with user code on."""
    args = args or ("--threads=4",)
    return serving(*args, model_dir=str(models), user_code="on", **settings)


def add_neighbor(models: Path) -> None:
    """Add a simulated model `neighbor`, which returns its input."""
    simulated_models(models, neighbor=ECHO)


@contextlib.contextmanager
def healthy_neighbor(server: Server) -> Iterator[None]:
    """Ask the default model meanwhile, and check that it answers everything.

    It is asked before the block, and still answers after it.
    """
    with Traffic(server.port, [[7]]) as traffic:

        def wait_for_answers() -> None:
            until = traffic.answers.total() + 20
            wait_until(lambda: traffic.answers.total() >= until, 30)

        wait_for_answers()
        yield
        wait_for_answers()
    assert traffic.failed == []
    assert traffic.numbers() == {(7.0,)}


def predict(
    server: Server, name: str, instances: object, headers: dict[str, str] | None = None
) -> tuple[int, object]:
    """POST instances to a model; return the status, and predictions or the error."""
    body = json.dumps({"instances": instances}).encode()
    reply = server.request("POST", f"/v1/models/{name}:predict", body, headers)
    answer = reply.json()
    return reply.status, answer.get("predictions", answer.get("error"))
