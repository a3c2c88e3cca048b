"""Loads of versions, and which of them failed with what."""

import logging
import math
import time
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from app.engines.loading import without_machine
from app.errors import ModelLoadError, NotYetLoadable, SettingsError
from app.repository.loading.opener import Opener
from app.repository.loading.quarantine import Quarantine
from app.repository.scan import (
    Content,
    Fingerprint,
    ModelFolder,
    content,
    fingerprint,
    has_changed,
)
from app.repository.served import ServedModel
from app.settings import Settings
from app.settings.image_config import ImageConfig
from app.settings.model_config import ModelConfig

_log = logging.getLogger(__name__)
# A load that waits for another server blocks all other loads. So the pause until its
# next try is so many times as long as the try.
_PAUSE_FACTOR = 10
_LONGEST_PAUSE_S = 60.0
# What of basket.toml counts when a version is loaded.
_LoadConfig: TypeAlias = tuple[Settings, ImageConfig | None]


class _Failure(NamedTuple):
    """A failed load; another try makes sense after a change, or at a time."""

    files: Fingerprint
    config: _LoadConfig
    reason: str
    retry_at: float


class Loads:
    """Loads versions, with what failed and what was read; used by one thread."""

    def __init__(self, opener: Opener, quarantine: Quarantine) -> None:
        """Store the parts."""
        self._opener = opener
        self._quarantine = quarantine
        # Both by name and version.
        self._failed: dict[tuple[str, int], _Failure] = {}
        self._read: dict[tuple[str, int], Content] = {}

    def load(
        self,
        folder: ModelFolder,
        version: int,
        config: ModelConfig,
        *,
        is_served: bool = False,
    ) -> ServedModel | str:
        """Load a version; if that fails, log and return the reason.

        The caller shows the reason of a version that `is_served` already.
        """
        key, path = (folder.name, version), folder.versions[version]
        last = self._failed.pop(key, None)
        # A retry is logged only if its reason changes.
        last_reason = last.reason if last and last.retry_at < math.inf else ""
        if not last_reason:
            again = " again: basket.toml has changed" if is_served else ""
            _log.info("loading model %s version %s%s", *key, again)
        files = fingerprint(path)
        began_at = time.monotonic()
        try:
            with self._quarantine.loading(*key, files):
                read = content(path, files)
                served = self._opener.open(*key, path, config)
        except BaseException as error:  # a model may raise anything
            reason = f"failed to load ({type(error).__name__})"
            if not isinstance(error, ModelLoadError | SettingsError):
                _log.exception("model %s version %s is not served", *key)
            else:
                # Clients read it in /readyz.
                reason = without_machine(str(error))
                if reason != last_reason and not is_served:
                    _log.error("model %s %s is not served: %s", *key, reason)
            retry_at = _retry_at(began_at, error)
            self._failed[key] = _Failure(files, _load_config(config), reason, retry_at)
            return reason
        self._read[key] = read
        return served

    def failure(self, folder: ModelFolder, version: int, config: ModelConfig) -> str:
        """Return the reason why a version is not to be tried now, "" if it is."""
        failed = self._failed.get((folder.name, version))
        if (
            failed is None
            or failed.retry_at <= time.monotonic()
            or failed.config != _load_config(config)
            or failed.files != fingerprint(folder.versions[version])
        ):
            return ""
        return failed.reason

    def overwritten(self, folder: ModelFolder) -> Iterator[int]:
        """Yield the loaded versions whose files have other content now."""
        for version, path in sorted(folder.versions.items()):
            if has_changed(self._read.get((folder.name, version)), path):
                yield version

    def forget_content(self, name: str, version: int) -> None:
        """Forget what was read of a version that is unloaded."""
        self._read.pop((name, version), None)

    def forget_failures(self, name: str) -> None:
        """Have all versions of a model be tried again."""
        self._quarantine.release(name)
        for key in [key for key in self._failed if key[0] == name]:
            del self._failed[key]


def is_outdated(served: ServedModel, config: ModelConfig) -> bool:
    """Return whether a version was loaded with other settings or another [image]."""
    return _load_config(served.config) != _load_config(config)


def _load_config(config: ModelConfig) -> _LoadConfig:
    return config.settings, config.image


def _retry_at(began_at: float, error: BaseException) -> float:
    """Return the time of the next try after a load that has failed now."""
    if not isinstance(error, NotYetLoadable):
        return math.inf
    now = time.monotonic()
    return now + min(_PAUSE_FACTOR * (now - began_at), _LONGEST_PAUSE_S)
