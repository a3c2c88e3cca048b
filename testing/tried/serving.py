"""Serves the models that were tried, and compares its answers with Keras's."""

import contextlib
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from testing import server
from testing.tried.case import Tried
from testing.tried.saving import Known, Saving

_LOADED_WITHIN_S = 240


@dataclass(frozen=True)
class Outcome:
    """What came of a model: the reason why it is refused, or how far answers differ.

    The difference is a share of the output's largest value; `unbatched` says why rows
    run alone.
    """

    refusal: str
    difference: float = 0.0
    unbatched: str = ""


class TriedModels:
    """A running server with models, and what they answer by themselves."""

    def __init__(self, running: server.Server, known: Mapping[str, Known]) -> None:
        self.server = running
        self.known = known
        self._readiness: dict[str, Any] = {}

    def outcome(self, model: Tried) -> Outcome:
        """Ask for all rows in one request, and for the first alone.

        Raises:
            AssertionError: an answer is no 200, or has another form.
        """
        is_served, reason = self._state(model.name)
        if not is_served:
            return Outcome(reason)
        known = self.known[model.name]
        if known.is_whole:
            reply = self._answered(model, {"inputs": known.rows})
            return Outcome("", difference(reply["outputs"], known.answers))
        differences = [
            difference(given, expected)
            for rows in (slice(None), slice(1))
            for given, expected in zip(
                self._answered(model, {"instances": known.rows[rows]})["predictions"],
                known.answers[rows],
                strict=True,
            )
        ]
        if known.refused:
            reply = self.ask(model, {"instances": known.refused})
            assert reply.status == 400, reply.body
            assert known.error in reply.json()["error"]
        return Outcome("", max(differences), reason)

    def ask(self, model: Tried, body: Mapping[str, Any]) -> server.Reply:
        """Return the response to a V1 prediction."""
        data = json.dumps(body, default=_plain).encode()
        return self.server.request("POST", f"/v1/models/{model.name}:predict", data)

    def _answered(self, model: Tried, body: Mapping[str, Any]) -> Any:
        reply = self.ask(model, body)
        assert reply.status == 200, f"{model.name}: {reply.body.decode()}"
        return reply.json()

    def _state(self, name: str) -> tuple[bool, str]:
        """Return whether a model is served, and what /readyz says of problems."""
        if not self._readiness:
            self._readiness = self.server.request("GET", "/readyz").json()
        reasons = self._readiness.get("problems", {}).get(name, [])
        text = "; ".join(reason.removeprefix("version 1: ") for reason in reasons)
        return name in self._readiness["models"], text


@contextlib.contextmanager
def serving(models: Sequence[Tried], keras: Any, tf: Any) -> Iterator[TriedModels]:
    """Save models while a server loads those that are there; yield when all are."""
    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryDirectory() as new,
        server.serving("--threads=4", ready=False, model_dir=folder) as running,
    ):
        known = {}
        for model in models:
            # The same weights each time: with others a row's answers may come near
            # zero, where no digits are left.
            keras.utils.set_random_seed(1)
            version = Path(new) / model.name / "1"
            known[model.name] = model.make(Saving(keras, tf, version))
            (Path(new) / model.name).rename(Path(folder) / model.name)
        running.wait_until(lambda: _all_known(running, known), _LOADED_WITHIN_S)
        running.wait_until_loaded()
        yield TriedModels(running, known)


def _all_known(running: server.Server, names: Mapping[str, Any]) -> bool:
    try:
        state = running.request("GET", "/readyz").json()
    except OSError:
        return False
    return set(names) <= {*state["models"], *state.get("problems", {})}


def _plain(value: Any) -> Any:
    """Return what JSON has for NumPy's values, and for the bytes of strings."""
    return value.decode() if isinstance(value, bytes) else np.asarray(value).tolist()


def difference(given: Any, expected: Any) -> float:
    """Return how far a row's answer differs; infinite for another string or shape."""
    if isinstance(expected, Mapping):
        assert set(given) == set(expected), (set(given), set(expected))
        return max(difference(given[name], expected[name]) for name in expected)
    expected = np.asarray(expected)
    if expected.dtype.kind in "OSb":
        return 0.0 if given == _plain(expected.tolist()) else float("inf")
    found = np.asarray(given, np.float64)
    assert found.shape == expected.shape, (found.shape, expected.shape)
    largest = max(float(np.abs(expected).max(initial=0.0)), np.finfo("f4").tiny)
    return float(np.abs(found - expected).max(initial=0.0)) / largest
