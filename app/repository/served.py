"""What a catalog holds: models, their versions, and what state these are in."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from app.batching.interfaces import Observer, Runner
from app.engines.base import Signature
from app.errors import BasketError, NotReady, UnknownModel
from app.repository.routing import Routes
from app.settings.model_config import ModelConfig


class State(StrEnum):
    """A version's state, in TensorFlow Serving's words."""

    LOADING = "LOADING"
    AVAILABLE = "AVAILABLE"
    UNLOADING = "UNLOADING"
    END = "END"


# What a model lacks whose versions are still to come.
IS_LOADING = "is loading"


@dataclass(frozen=True)
class ServedModel:
    """A version that is loaded, warm and taking jobs."""

    name: str
    version: int
    platform: str
    signatures: Mapping[str, Signature]
    config: ModelConfig
    runner: Runner
    observer: Observer


@dataclass(frozen=True)
class VersionStatus:
    """A version's state; `error` says why one that should be served is not."""

    version: int
    state: State
    error: str = ""


@dataclass
class Version:
    """A version in the catalog; `leases` are the requests that use it now."""

    state: State
    error: str = ""
    served: ServedModel | None = None
    leases: int = 0


@dataclass
class Model:
    """A name's versions.

    `problem` is what is wrong with the model as a whole; it is `settled` once each
    version that it should start with is ready or has failed.
    """

    versions: dict[int, Version] = field(default_factory=dict)
    routes: Routes = field(default_factory=Routes)
    problem: str = ""
    settled: bool = False
    unloaded: bool = False

    def failures(self) -> list[str]:
        """All that went wrong, with what serves all the same too."""
        texts = [
            f"version {number}: {version.error}"
            for number, version in sorted(self.versions.items())
            if version.error
        ]
        return [self.problem, *texts] if self.problem else texts

    def status(self) -> list[VersionStatus]:
        """The versions, highest first."""
        return [
            VersionStatus(number, version.state, version.error)
            for number, version in sorted(self.versions.items(), reverse=True)
        ]

    def not_ready(self) -> str:
        """Why it should be served and is not yet; empty: it is, or is unloaded."""
        if self.unloaded:
            return ""
        return self.unavailable_reason() or ("" if self.settled else IS_LOADING)

    def unavailable_reason(self) -> str:
        """Why no version serves; empty when one does."""
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

    def refusal(self, name: str, number: int) -> BasketError:
        """Why a version that a request names does not answer it."""
        text = f"model {name!r}: version {str(number)[:20]}"
        version = self.versions.get(number)
        if version is not None and version.state is State.END:
            return NotReady(f"{text}: {version.error}")
        if version is not None:
            return NotReady(f"{text} is {version.state.lower()}")
        if self.settled:
            return UnknownModel(f"{text} is not served")
        # Its turn has not come, or is over.
        return NotReady(f"{text} is {'unloaded' if self.unloaded else 'loading'}")

    def available(self) -> dict[int, ServedModel]:
        """The versions that take jobs."""
        return {
            number: version.served
            for number, version in self.versions.items()
            if version.state is State.AVAILABLE and version.served
        }
