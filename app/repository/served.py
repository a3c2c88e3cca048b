"""The entries of a catalog: models, their versions, and the states of these."""

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from app.batching.interfaces import Observer, Runner
from app.batching.job import Key
from app.codec.bounds import INLINE_BYTES
from app.codec.json_rows import PlainInput, plain_input
from app.engines.base import DEFAULT_SIGNATURE, Signature
from app.errors import BasketError, NotReady, UnknownModel
from app.repository.routing import Rollout, Routes, Target
from app.settings.model_config import CaptureConfig, ModelConfig
from app.user_code.user_code import UserCode

_log = logging.getLogger(__name__)


class State(StrEnum):
    """A version's state, as TensorFlow Serving names it."""

    LOADING = "LOADING"
    AVAILABLE = "AVAILABLE"
    UNLOADING = "UNLOADING"
    END = "END"


# The reason why a starting model has no version yet.
IS_LOADING = "is loading"


@dataclass(frozen=True, eq=False)
class ServedModel:
    """A version that is loaded, warmed up, and accepts jobs; equal to itself alone."""

    name: str
    version: int
    platform: str
    signatures: Mapping[str, Signature]
    config: ModelConfig
    runner: Runner
    observer: Observer
    user_code: UserCode | None = None

    def stuck_s(self) -> float:
        """Return for how many seconds its model or its own code makes no progress."""
        code_s = self.user_code.threads.stuck_s() if self.user_code else 0.0
        return max(self.runner.stuck_s(), code_s)

    def close(self, timeout_s: float) -> None:
        """Close the runner as Runner does, and log any error."""
        try:
            self.runner.close(timeout_s)
        except Exception:  # an engine may raise anything
            _log.exception("model %s: an error at its close", self.name)

    @cached_property
    def has_tensors(self) -> bool:
        """Whether the model has inputs and outputs of its own, as V2 promises."""
        return self.user_code is None or not self.user_code.takes_objects

    @cached_property
    def reads_instances(self) -> bool:
        """Whether the user's own code makes rows of a request's instances."""
        return self.user_code is not None and self.user_code.reads_instances

    @cached_property
    def writes_predictions(self) -> bool:
        """Whether the user's own code makes the response of the outputs."""
        return self.user_code is not None and self.user_code.writes_predictions

    @cached_property
    def plain_input(self) -> PlainInput | None:
        """The input whose rows in JSON are read at once; None: they are not plain."""
        if self.config.image is not None or self.user_code is not None:
            return None
        return plain_input(self.signatures.get(DEFAULT_SIGNATURE))

    @cached_property
    def plain_key(self) -> Key:
        """The key of all jobs of the plain input."""
        plain = self.plain_input
        assert plain is not None  # or there is no such job
        return DEFAULT_SIGNATURE, ((plain.name, plain.dtype, (plain.size,)),)

    @cached_property
    def inline_rows(self) -> int:
        """The rows whose outputs surely are small, 0 if that is not known before."""
        bytes_of_row = 1
        for signature in self.signatures.values():
            specs = signature.outputs
            if any(s.dtype.hasobject or s.any_rank or None in s.shape for s in specs):
                return 0
            sizes = [s.dtype.itemsize * math.prod(map(int, s.shape)) for s in specs]  # type: ignore[arg-type]
            bytes_of_row = max(bytes_of_row, sum(sizes))
        return INLINE_BYTES // bytes_of_row

    @cached_property
    def max_rows(self) -> int:
        """The most rows that a request may have: what an empty queue holds."""
        return self.config.settings.max_rows

    @cached_property
    def has_narrower_inputs(self) -> bool:
        """Whether the model's own dtype of an input is narrower than the input's."""
        signatures = self.signatures.values()
        return any(spec.narrower for each in signatures for spec in each.inputs)


@dataclass(frozen=True)
class VersionStatus:
    """A version's state; `error` is the reason why it can't be served."""

    version: int
    state: State
    error: str = ""


@dataclass
class Version:
    """A version in the catalog; `leases` is the number of requests that use it."""

    state: State
    error: str = ""
    served: ServedModel | None = None
    leases: int = 0


@dataclass
class Model:
    """A model's versions.

    `problem` is an error of the whole model; `rollout` is None if the newest version
    serves, unless labels have traffic. The model is `settled` once each version
    that its folder asks for is ready or has failed.
    """

    versions: dict[int, Version] = field(default_factory=dict)
    routes: Routes = field(default_factory=Routes)
    rollout: Rollout | None = None
    capture: CaptureConfig | None = None
    problem: str = ""
    settled: bool = False
    unloaded: bool = False

    def route(self, routes: Routes, capture: CaptureConfig | None) -> None:
        """Set labels, traffic, and which requests are captured."""
        self.capture = capture
        if routes != self.routes:
            self.routes = routes

    def keep_routes(self, before: "Model") -> None:
        """Continue the split of a model's former state, if it is unchanged."""
        if self.routes == before.routes:
            self.routes = before.routes

    def failures(self) -> list[str]:
        """Return the errors of the model and of its versions, and who is unbatched."""
        texts = [
            f"version {number}: {text}"
            for number, version in sorted(self.versions.items())
            for text in (version.error, *(_unbatched(version.served)))
            if text
        ]
        return [self.problem, *texts] if self.problem else texts

    def status(self) -> list[VersionStatus]:
        """Return the states of the versions, highest first."""
        return [
            VersionStatus(number, version.state, version.error)
            for number, version in sorted(self.versions.items(), reverse=True)
        ]

    def not_ready(self) -> str:
        """Return why the model is not ready, or "" if it is, or was unloaded."""
        if self.unloaded:
            return ""
        return self.unavailable_reason() or ("" if self.settled else IS_LOADING)

    def unavailable_reason(self) -> str:
        """Return why no version is available, or "" if one is."""
        if self.available():
            return ""
        if self.unloaded:
            return "is unloaded"
        newest_first = [self.versions[number] for number in sorted(self.versions)][::-1]
        loading = any(version.state is State.LOADING for version in newest_first)
        if loading or not self.settled:
            return IS_LOADING
        errors = [version.error for version in newest_first if version.error]
        return self.problem or next(iter(errors), "has no version that serves")

    def splits(self, target: Target) -> bool:
        """Return whether requests for a target may get different versions."""
        if target.version is not None or target.label is not None:
            return False
        return bool(self.routes.traffic) or self.rollout is not None

    def choose(self, name: str, target: Target) -> Version:
        """Return the version that a request selects of this model, named so.

        Raises:
            UnknownModel: the version is unknown.
            BadInput: the label is unknown.
            NotReady: the version is loading, unloaded, or failed to load.
        """
        available = self.available()
        number = None
        if self.versions:
            number = self.routes.choose(target, available, self.rollout)
        if number is None:
            raise NotReady(f"model {name!r}: {self.unavailable_reason()}")
        if number not in available:
            raise self.refusal(name, number)
        return self.versions[number]

    def refusal(self, name: str, number: int) -> BasketError:
        """Return the error for a request that names an unavailable version."""
        text = f"model {name!r}: version {str(number)[:20]}"
        version = self.versions.get(number)
        if version is not None and version.state is State.END:
            return NotReady(f"{text}: {version.error}")
        if version is not None:
            return NotReady(f"{text} is {version.state.lower()}")
        if self.settled:
            return UnknownModel(f"{text} is not served")
        # A version that the loader has yet to load, or has removed.
        return NotReady(f"{text} is {'unloaded' if self.unloaded else 'loading'}")

    def available(self) -> dict[int, ServedModel]:
        """Return the versions that accept jobs, by number."""
        return {
            number: version.served
            for number, version in self.versions.items()
            if version.state is State.AVAILABLE and version.served
        }


def _unbatched(served: ServedModel | None) -> list[str]:
    """Return why signatures are unbatched, each reason once."""
    names: dict[str, list[str]] = {}
    for name, signature in (served.signatures if served else {}).items():
        if signature.unbatched:
            names.setdefault(signature.batching_note(), []).append(name)
    return [f"{', '.join(each)}: {note}" for note, each in names.items()]
