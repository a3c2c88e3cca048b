"""How users save models: with Keras, as an export, or as a SavedModel of functions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Rows = np.ndarray | Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Known:
    """Rows as in JSON's instances, and the model's own answer to each.

    A model with several inputs has an object for each row, and one with several outputs
    a dict for each answer. With `refused` rows the server answers 400, and this text.
    `is_whole`: both are instead what is under JSON's `inputs` and `outputs`.
    """

    rows: Any
    answers: Any
    refused: Sequence[Any] = ()
    error: str = ""
    is_whole: bool = False

    def and_rows(self, other: "Known") -> "Known":
        """Return these rows, and behind them those of `other`."""
        return Known([*self.rows, *other.rows], [*self.answers, *other.answers])


@dataclass(frozen=True)
class Saving:
    """Saves one model into `folder`, the version's, with Keras and TensorFlow."""

    keras: Any
    tf: Any
    folder: Path

    def save(
        self, model: Any, rows: Rows | None = None, name: str = "model.keras"
    ) -> Known:
        """Call `model.save`, and return `predict`'s answers."""
        self.folder.mkdir(parents=True, exist_ok=True)
        model.save(self.folder / name)
        return self.predicted(model, rows)

    def export(self, model: Any, rows: Rows | None = None) -> Known:
        """Call `model.export`, and return `predict`'s answers."""
        model.export(self.folder, verbose=False)
        return self.predicted(model, rows)

    def predicted(self, model: Any, rows: Rows | None) -> Known:
        """Return rows and `predict`'s answers; no rows are those of a refused model."""
        if rows is None:
            return Known((), ())
        inputs = self.tf.nest.map_structure(self._tensor, rows)
        answers = model.predict(inputs, verbose=0, batch_size=len(by_row(rows)))
        if isinstance(answers, list | tuple):
            answers = dict(zip(model.output_names, answers, strict=True))
        return Known(by_row(rows), by_row(answers))

    def alone(self, model: Any, rows: np.ndarray) -> Known:
        """Return rows, and what `predict` answers to each of them alone."""
        answers = [
            model.predict_on_batch(self._tensor(rows[row : row + 1]))[0]
            for row in range(len(rows))
        ]
        return Known(list(rows), answers)

    def _tensor(self, array: np.ndarray) -> Any:
        """Return strings as TensorFlow has them; Keras takes no others."""
        return self.tf.constant(array) if array.dtype.kind in "SUO" else array

    def functions(
        self,
        rows: Rows | None = None,
        *,
        keep: Any = (),
        is_whole: bool = False,
        **signatures: Any,
    ) -> Known:
        """Call `tf.saved_model.save`, and return the answers of `serving_default`.

        Each signature is a function and then the `tf.TensorSpec` of its arguments;
        `keep` are the resources that the functions use, and `rows` whole tensors where
        `is_whole`.
        """
        module, found = self.tf.Module(), {}
        module.keep = keep
        for name, (function, *specs) in signatures.items():
            found[name] = self.tf.function(function, input_signature=specs)
            setattr(module, name, found[name])
        self.tf.saved_model.save(module, str(self.folder), signatures=found)
        return self.signature_answers(rows, is_whole=is_whole)

    def signature_answers(self, rows: Rows | None, *, is_whole: bool = False) -> Known:
        """Return what the folder's `serving_default` itself answers."""
        if rows is None:
            return Known((), ())
        loaded = self.tf.saved_model.load(str(self.folder))
        call = loaded.signatures["serving_default"]
        (names,) = [call.structured_input_signature[1]]
        given = rows if isinstance(rows, Mapping) else {next(iter(names)): rows}
        answers = call(
            **{name: self.tf.constant(array) for name, array in given.items()}
        )
        arrays = {name: tensor.numpy() for name, tensor in answers.items()}
        only = next(iter(arrays.values())) if len(arrays) == 1 else arrays
        if is_whole:
            return Known(rows, only, is_whole=True)
        return Known(by_row(rows), by_row(only))


def by_row(arrays: Any) -> list[Any]:
    """Return a list with an element, or a dict of elements, for each row."""
    if isinstance(arrays, Mapping):
        columns = zip(*map(by_row, arrays.values()), strict=True)
        return [dict(zip(arrays, column, strict=True)) for column in columns]
    return list(np.asarray(arrays))


def numbers(rows: int, *shape: int, seed: int = 0) -> np.ndarray:
    """Return float32 rows from 0 to 1."""
    return np.random.default_rng(seed).random((rows, *shape), np.float32)


def integers(below: int, *shape: int, seed: int = 0) -> np.ndarray:
    """Return int64 rows from 0 up to `below`."""
    return np.random.default_rng(seed).integers(0, below, shape)


Make = Callable[[Saving], Known]
