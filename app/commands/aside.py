"""Files and folders that are there as a whole or not at all."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from app.engines.reading import in_one_line
from app.errors import ModelLoadError


@contextmanager
def written_aside(target: Path) -> Iterator[Path]:
    """Give a path to write to, which becomes `target` at the end; no server sees half.

    It is in a hidden folder of its own, in the first folder above `target` that is
    there. Where the body raises, or is interrupted, nothing is left of it. A file
    takes the place of one that is there, a folder does not.

    Raises:
        ModelLoadError: it can't be written, or `target` has come to be meanwhile.
    """
    try:
        there = next(each for each in target.parents if each.exists())
        with TemporaryDirectory(prefix=f".{target.name}-", dir=there) as own:
            # Its owner alone may enter `own`, so that is not what becomes the target.
            partial = Path(own, target.name)
            yield partial
            target.parent.mkdir(parents=True, exist_ok=True)
            partial.rename(target)
    except OSError as error:
        reason = error.strerror or in_one_line(error)
        raise ModelLoadError(f"{target} can't be written: {reason}") from error
