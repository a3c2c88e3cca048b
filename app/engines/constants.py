"""Inputs that have one value for all requests: [constants] in a model's basket.toml.

A graph of TensorFlow 1 often has `is_training` or `keep_prob` beside its rows. A single
value is no row, so such a model could not be batched.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from app.engines.base import (
    DEFAULT_SIGNATURE,
    Array,
    Engine,
    Signature,
    Tensors,
    TensorSpec,
)
from app.engines.loading import signature_of_tensors
from app.engines.refusal import does_not_fit
from app.errors import ModelLoadError, OutOfDeviceMemory

_PLACE = "basket.toml: [constants]"
# Kinds of NumPy's dtypes -> types of TOML's values.
_TYPES: Mapping[str, tuple[type, ...]] = {
    "b": (bool,),
    "i": (int,),
    "u": (int,),
    "f": (int, float),
    "O": (str,),
}


class WithConstants:
    """An engine without the inputs that are constants, by the signature's name."""

    def __init__(
        self,
        engine: Engine,
        signatures: Mapping[str, Signature],
        constants: Mapping[str, Tensors],
    ) -> None:
        """Store the parts; `constants` are whole tensors in arrays of one row."""
        self._engine = engine
        self._constants = constants
        self.signatures = signatures
        self.platform = engine.platform
        self.weight_bytes = getattr(engine, "weight_bytes", 0)

    def run(self, batch: Tensors, signature_name: str = DEFAULT_SIGNATURE) -> Tensors:
        """Compute one batch; to the engine it is one row of whole tensors.

        Raises:
            OutOfDeviceMemory: as the engine does, with the number of rows.
            Exception: whatever the engine raises.
        """
        constants = self._constants.get(signature_name)
        if constants is None:
            return self._engine.run(batch, signature_name)
        if self.signatures[signature_name].takes_whole_tensors:
            return self._engine.run({**batch, **constants}, signature_name)
        whole = {name: array[np.newaxis] for name, array in batch.items()}
        try:
            outputs = self._engine.run({**whole, **constants}, signature_name)
        except OutOfDeviceMemory as error:
            (rows, *_) = map(len, batch.values())
            raise does_not_fit(rows) from error
        return {name: array[0] for name, array in outputs.items()}

    def close(self) -> None:
        """Close the engine."""
        self._engine.close()


def with_constants(engine: Engine, text: str) -> Engine:
    """Return the engine with the constants in a JSON text, "" for none.

    In signatures whose inputs are the rows of a batch, an input of that name stays.

    Raises:
        ModelLoadError: a constant is nowhere a whole tensor, or does not fit it.
    """
    if not text:
        return engine
    constants: dict[str, Any] = json.loads(text)
    signatures = dict(engine.signatures)
    inputs = {spec.name for each in signatures.values() for spec in each.inputs}
    whole = {key: each for key, each in signatures.items() if each.takes_whole_tensors}
    whole_inputs = {spec.name for each in whole.values() for spec in each.inputs}
    for name, value in constants.items():
        if name not in inputs:
            raise ModelLoadError(
                f"{_PLACE} {name}: the model has no such input; it has "
                f"{', '.join(sorted(inputs))}"
            )
        if name not in whole_inputs:
            raise ModelLoadError(
                f"{_place(name, value)}: the input has a value for each row of a "
                "batch, which only a request can give: leave it out here"
            )
    found: dict[str, Tensors] = {}
    for key, signature in whole.items():
        fixed = [spec for spec in signature.inputs if spec.name in constants]
        if not fixed:
            continue
        found[key] = {
            spec.name: _array(spec, constants[spec.name])[np.newaxis] for spec in fixed
        }
        rest = [spec for spec in signature.inputs if spec not in fixed]
        signatures[key] = _signature(key, rest, signature.outputs)
    return WithConstants(engine, signatures, found)


def _signature(
    name: str, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
) -> Signature:
    if not inputs:
        raise ModelLoadError(
            f"{_PLACE}: signature {name} has no other input: leave one for requests"
        )
    return signature_of_tensors(inputs, outputs)


def _place(name: str, value: Any) -> str:
    return f"{_PLACE} {name} = {json.dumps(value)[:80]}"


def _array(spec: TensorSpec, value: Any) -> Array:
    """Return a constant as an input's whole tensor.

    Raises:
        ModelLoadError: the value has another type or shape.
    """
    kind = "text" if spec.dtype.kind == "O" else spec.dtype.name
    shape = "a single value" if spec.shape == () else f"shape {spec.shape_text()}"
    expected = f"{_place(spec.name, value)}: expected {kind}, {shape}"
    try:
        array = np.array(value, object)
        leaves = array.ravel().tolist()
        if any(type(leaf) not in _TYPES[spec.dtype.kind] for leaf in leaves):
            raise TypeError
        if spec.dtype.kind == "O":
            array = np.array([leaf.encode() for leaf in leaves], object)
            array = array.reshape(np.shape(value))
        else:
            array = np.array(value, spec.dtype)
    except (TypeError, ValueError, OverflowError):
        raise ModelLoadError(expected) from None
    if not spec.accepts(array.shape):
        raise ModelLoadError(f"{expected}; given shape {array.shape}")
    return array
