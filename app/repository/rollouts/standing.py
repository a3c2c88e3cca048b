"""Which of a model's versions serves, and which one is to take over from it."""

import hashlib
from collections.abc import Collection, Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from app.promotion.record import LOST, Record
from app.repository.scan import Fingerprint, ModelFolder, content, fingerprint

_DIGEST_BYTES = 8


class Standing(NamedTuple):
    """A model's versions as a promotion sees them.

    `serving` has the traffic, and `candidate` is to get it; None: there is none.
    `refused` are those that are not promoted, with the reasons. `is_new` if no record
    says yet that `serving` is proven.
    """

    serving: int | None
    candidate: int | None = None
    refused: Mapping[int, str] = {}
    is_new: bool = False


def content_of(folder: ModelFolder, version: int) -> str:
    """Return the digest of a version's files, "" of one whose files are gone.

    Copies of a file have the digest of the file.
    """
    path = folder.versions.get(version)
    return "" if path is None else digest_of(path, fingerprint(path))


# Each scan asks for it, and reads no file that has not changed.
@lru_cache(maxsize=1024)
def digest_of(version: Path, files: Fingerprint) -> str:
    """Return a digest of a version's files, by name and content."""
    checksums = sorted(content(version, files).checksums.items())
    text = repr(checksums).encode()
    return hashlib.blake2b(text, digest_size=_DIGEST_BYTES).hexdigest()


def standing(
    folder: ModelFolder,
    record: Record,
    loadable: Collection[int],
    available: Collection[int],
) -> Standing:
    """Return the standing of a model with promotion.

    `loadable` versions are in the folder, and did not fail to load; `available` ones
    are loaded.
    """
    refused = {
        version: each.reason
        for version, each in sorted(record.refused.items())
        if version in folder.versions and each.content == content_of(folder, version)
    }
    allowed = [version for version in loadable if version not in refused]
    serving = _proven(folder, record, loadable, available)
    forced = record.forced
    if (
        forced is not None
        and forced.version in loadable
        and forced.content == content_of(folder, forced.version)
    ):
        return Standing(forced.version, None, refused, is_new=True)
    if record.is_lost:
        return _oldest(folder, loadable)
    is_new = serving is None
    if serving is None:
        # Nothing is known of any version: what serves, else the newest.
        loaded = [version for version in allowed if version in available]
        serving = max(loaded or allowed, default=None)
    best = max(allowed, default=None)
    if serving is None or best is None or best <= serving:
        return Standing(serving, None, refused, is_new)
    return Standing(serving, best, refused, is_new)


def _oldest(folder: ModelFolder, loadable: Collection[int]) -> Standing:
    """Return the standing where it is not known which versions were refused.

    The oldest one can't have been: each was compared with an older one.
    """
    oldest = min(folder.versions, default=None)
    refused = {each: LOST for each in sorted(folder.versions) if each != oldest}
    serving = oldest if oldest in loadable else None
    return Standing(serving, None, refused, is_new=True)


def _proven(
    folder: ModelFolder,
    record: Record,
    loadable: Collection[int],
    available: Collection[int],
) -> int | None:
    """Return the proven version if it can serve."""
    if record.proven is None:
        return None
    version = record.proven.version
    if version in folder.versions:
        is_same = record.proven.content == content_of(folder, version)
        return version if is_same and version in loadable else None
    # The version before an overwritten file is only in memory.
    return version if folder.is_overwritten and version in available else None
