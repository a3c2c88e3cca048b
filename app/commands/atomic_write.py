"""Atomic writes: a file or folder appears complete or not at all."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from app.engines.loading import error_summary
from app.errors import ModelLoadError


@contextmanager
def atomic_write(target: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; rename it to `target` when the body ends.

    It is in a hidden folder, in the nearest ancestor of `target` that exists, which
    is removed if the body raises or is interrupted. A file replaces an existing one,
    a folder does not.

    Raises:
        ModelLoadError: it can't be written, or another `target` was created
            meanwhile.
    """
    try:
        ancestor = next(each for each in target.parents if each.exists())
        with TemporaryDirectory(prefix=f".{target.name}-", dir=ancestor) as folder:
            # A path inside, because only the owner may enter `folder` itself.
            partial = Path(folder, target.name)
            yield partial
            target.parent.mkdir(parents=True, exist_ok=True)
            partial.rename(target)
    except OSError as error:
        reason = error.strerror or error_summary(error)
        raise ModelLoadError(f"{target} can't be written: {reason}") from error
