"""Folders that are there as a whole or not at all."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.errors import ModelLoadError


@contextmanager
def written_aside(target: Path) -> Iterator[Path]:
    """Give a folder to make, which becomes `target` at the end; no server sees half.

    Where the body raises, or is interrupted, nothing is left of it.

    Raises:
        ModelLoadError: it can't be written, or `target` has come to be meanwhile.
    """
    partial = target.with_name(f".partial-{target.name}")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        yield partial
        partial.rename(target)
    except OSError as error:
        raise ModelLoadError(f"{target} can't be written: {error.strerror}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
