"""Rows of the user's own: a file of JSON, as /predict takes it, or of arrays (.npz)."""

from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from app.codec import rows
from app.codec.bounds import Bounds
from app.codec.fit import check_equal_rows, fit
from app.codec.uneven import Uneven
from app.engines.base import Array, Engine, Tensors, main_signature
from app.errors import BadInput, BasketError, ModelLoadError
from app.settings.image_config import ImageConfig

_ANY_SHAPES = Bounds(splits_rows=True)


@dataclass(frozen=True)
class GivenRows:
    """Rows of one shape, (rows, *shape) by input, which repeat."""

    inputs: Tensors

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(next(iter(self.inputs.values())))

    def make(self, rows: int, random: np.random.Generator) -> Tensors:
        """Return so many rows, in the file's order; nothing about them is random."""
        del random
        order = np.arange(rows) % len(self)
        return {name: array[order] for name, array in self.inputs.items()}

    def blank(self, rows: int) -> Tensors:
        """Return rows of zeros, and of empty strings, shaped as these."""
        return {
            name: np.full(
                (rows, *array.shape[1:]),
                b"" if array.dtype.kind == "O" else 0,
                array.dtype,
            )
            for name, array in self.inputs.items()
        }

    def large(self, rows: int, random: np.random.Generator) -> None:
        """Return None: the rows of one's own have the values that clients send."""
        del rows, random

    def describe(self) -> str:
        """Return the number of rows, and their shapes where these are not single."""
        shapes = [array.shape[1:] for array in self.inputs.values()]
        sizes = ", ".join(str(shape) for shape in shapes if shape)
        return f" ({len(self)}{f' of shape {sizes}' if sizes else ''})"


def read_given_rows(
    file: Path, engine: Engine, image: ImageConfig | None
) -> tuple[str, list[GivenRows]]:
    """Return the signature that the file's rows are for, and them by their shapes.

    Raises:
        ModelLoadError: the file can't be read, or has other rows than the model takes.
    """
    try:
        if file.suffix == ".npz":
            name, signature = main_signature(engine.signatures)
            with np.load(file, allow_pickle=False) as arrays:
                inputs: dict[str, Array] = dict(arrays)
            expected = {spec.name for spec in signature.inputs}
            if inputs.keys() != expected:
                raise BadInput(
                    f"expected arrays {', '.join(sorted(expected))}, given "
                    f"{', '.join(sorted(inputs)) or 'none'}"
                )
            check_equal_rows(inputs, "{}")
            fitted = {
                spec.name: fit(_strings(inputs[spec.name]), spec, spec.name)
                for spec in signature.inputs
            }
            return name, [GivenRows(fitted)]
        text = file.read_bytes().strip()
        body = b'{"instances": %b}' % text if text.startswith(b"[") else text
        found = rows.decode(body, engine.signatures, image, _ANY_SHAPES)
    except (BasketError, BadZipFile, EOFError, OSError, ValueError) as error:
        raise ModelLoadError(f"--rows {file}: {error}") from error
    groups = found.inputs.groups if isinstance(found.inputs, Uneven) else [found.inputs]
    return found.signature_name, [GivenRows(group) for group in groups]


def _strings(array: Array) -> Array:
    """Return NumPy's fixed-length strings as objects that hold bytes."""
    if array.dtype.kind == "U":
        array = np.char.encode(array.astype(np.str_), "utf-8")
    return array.astype(object) if array.dtype.kind == "S" else array
