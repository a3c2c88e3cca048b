"""Tensors and an example, as clients need them to build a request."""

from collections.abc import Iterable
from math import prod
from typing import Any

from app.codec.fit import has_json_form, type_name
from app.engines.base import TensorSpec, main_signature
from app.repository.served import ServedModel

# An example is to be read and edited: the most values of zeros, or bytes of JSON.
_MOST_VALUES = 4096
_MOST_BYTES = 16 << 10


def row_tensors(
    model: ServedModel, specs: Iterable[TensorSpec]
) -> list[dict[str, Any]]:
    """Return name, dtype and shape of each tensor's rows; None: unknown rank.

    A model without tensors of its own has none.
    """
    return [
        {
            "name": spec.name,
            "dtype": type_name(spec.dtype),
            "shape": None if spec.any_rank else spec.shape,
        }
        for spec in specs
        if model.has_tensors
    ]


def own_example(model: ServedModel, max_bytes: int = _MOST_BYTES) -> Any:
    """Return EXAMPLE of a model's service.py; None: it has none of so little JSON."""
    code = model.user_code
    if code is None or not code.service.has_example:
        return None
    return code.example_json(max_bytes)


def example_body(model: ServedModel) -> dict[str, Any] | None:
    """Return a JSON body for /predict: EXAMPLE, or zeros that fit the signature.

    None: service.py alone knows what it takes, or there would be too many values.
    """
    own = own_example(model)
    if own is not None:
        return {"instances": [own]}
    _, signature = main_signature(model.signatures)
    sizes = [[size or 1 for size in spec.shape] for spec in signature.inputs]
    is_known = not model.reads_instances and all(map(has_json_form, signature.inputs))
    if not is_known or sum(map(prod, sizes)) > _MOST_VALUES:
        return None
    values = {spec.name: _zeros(spec) for spec in signature.inputs}
    value = values if len(values) > 1 else next(iter(values.values()), {})
    # Without rows, a list of them would be the tensor itself.
    return (
        {"inputs": value} if signature.takes_whole_tensors else {"instances": [value]}
    )


def _zeros(spec: TensorSpec) -> Any:
    zeros = spec.blank(1)
    # JSON has text, and no bytes.
    return (zeros.astype(str) if spec.dtype.kind == "O" else zeros).tolist()[0]
