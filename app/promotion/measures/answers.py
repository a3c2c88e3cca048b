"""What a version answers to some rows, as its clients get it."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from app.batching.execution import checked, padded
from app.codec import json_text
from app.codec.fit import fit
from app.codec.uneven import Uneven
from app.engines.base import DEFAULT_SIGNATURE, Signature, Tensors
from app.engines.batch_sizes import pad
from app.engines.loading import error_summary
from app.errors import Abandoned, BasketError, ModelBroken, Unavailable
from app.promotion.side import RowGroup, Side


class Answers(NamedTuple):
    """The outputs (rows, *shape), and what postprocess of service.py made of each row.

    A version that takes objects has no outputs.
    """

    outputs: Tensors
    predictions: Sequence[Any] | None


class Failure(NamedTuple):
    """A version failed on a row, or refused it; the text says how."""

    text: str


class _UnlikeShapes(Exception):
    """preprocess made rows of several shapes, which share no batch."""


def answer(
    side: Side, group: RowGroup, rows: Sequence[int], sizes: Sequence[int]
) -> Answers:
    """Return a version's answers to some rows of a group, run as one batch.

    Raises:
        Exception: what the model or its service.py raises.
    """
    name, code = group.signature_name, side.user_code
    signature = side.signatures[name]
    inputs = _inputs(side, group, rows)
    size = padded(len(rows), signature.batch_sizes(sizes))
    batch = {name: pad(array, size) for name, array in inputs.items()}
    ran = checked(side.run(batch, name), size, signature)
    outputs = {name: array[: len(rows)] for name, array in ran.items()}
    if code is None or not code.writes_predictions or name != DEFAULT_SIGNATURE:
        return Answers(outputs, None)
    predictions = json_text.loads(code.body_of(outputs))["predictions"]
    return Answers({} if code.takes_objects else outputs, predictions)


def _inputs(side: Side, group: RowGroup, rows: Sequence[int]) -> Tensors:
    if not group.instances:
        return {
            spec.name: fit(group.inputs[spec.name][rows], spec, spec.name)
            for spec in side.signatures[group.signature_name].inputs
        }
    assert side.user_code is not None  # or there were no instances
    instances = [group.instances[row] for row in rows]
    inputs = side.user_code.inputs_of(instances, "instances")
    if isinstance(inputs, Uneven):
        raise _UnlikeShapes
    return inputs


def answer_or_failure(
    side: Side, group: RowGroup, rows: Sequence[int], sizes: Sequence[int]
) -> Answers | Failure:
    """Return the answers, or what the version failed with.

    Raises:
        Unavailable: rows can't be run now, whatever they are.
        Abandoned: likewise.
    """
    try:
        return answer(side, group, rows, sizes)
    except ModelBroken as error:
        return Failure(str(error))
    except (Unavailable, Abandoned):
        raise
    except Exception as error:  # a model may raise anything
        cause = error.__cause__ or error
        return Failure(f"{type(cause).__name__}: {error_summary(cause)}")


def fits(side: Side, group: RowGroup) -> bool:
    """Return whether a version takes the rows of a group."""
    signature = side.signatures.get(group.signature_name)
    if signature is None:
        return False
    if group.instances:
        return side.reads_instances()
    return not side.takes_objects() and all_fit(group.inputs, signature)


def all_fit(inputs: Tensors, signature: Signature) -> bool:
    """Return whether these are a signature's inputs, of which each fits."""
    if inputs.keys() != {spec.name for spec in signature.inputs}:
        return False
    try:
        for spec in signature.inputs:
            fit(inputs[spec.name], spec, spec.name)
    except BasketError:
        return False
    return True
