"""Requests to a model whose service.py makes rows of their instances."""

from collections.abc import Sequence
from typing import Any

from app.api import upload
from app.api.exchange import Exchange
from app.api.recording.samples import json_lines
from app.codec import json_text, npy, rows, strings
from app.engines.base import DEFAULT_SIGNATURE
from app.errors import BadInput, too_many_rows
from app.repository.served import ServedModel

_EXPECTED = 'expected a JSON object: {"instances": [instance, ...]}'


def decode(
    exchange: Exchange, body: bytes, model: ServedModel, *, ignore_tail: bool = False
) -> rows.Request:
    """Return the rows that preprocess makes of a body's instances.

    These are values of {"instances": [...]}, files of a form, a picture as the whole
    body, or the rows of a .npy.

    Raises:
        BadInput: no instances, or preprocess refuses one.
        TooLarge: too many instances.
        ModelFailed: preprocess fails, or gives what the model does not take.
        BasketError: nobody waits for the answer any more.
    """
    if exchange.mimetype == npy.CONTENT_TYPE:
        # A copy, which preprocess may change.
        rows_of_body = list(npy.read_rows(body, model.max_rows).copy())
        return _request(exchange, model, rows_of_body, "rows")
    if not body.startswith(b"{") and upload.has_pictures(exchange.mimetype, body):
        files = [bytes(file) for file in upload.files(exchange, body)]
        return _request(exchange, model, files, "picture")
    check = exchange.check_awaited
    with json_text.opened_whole(body, check, ignore_tail=ignore_tail) as payload:
        return read(exchange, payload, model)


def read(exchange: Exchange, payload: Any, model: ServedModel) -> rows.Request:
    """Return the rows that preprocess makes of the instances in JSON's value.

    Raises:
        BasketError: as `decode`.
    """
    if not isinstance(payload, dict):
        raise BadInput(_EXPECTED)
    name = payload.get("signature_name") or DEFAULT_SIGNATURE
    if name != DEFAULT_SIGNATURE or "inputs" in payload:
        raise BadInput(f"this model is asked through its service.py: {_EXPECTED}")
    instances = payload.get("instances")
    if not isinstance(instances, list) or not instances:
        raise BadInput("'instances' must be a list/array with at least one instance")
    if any(map(strings.is_b64, instances)):
        instances = [_decoded(each, n) for n, each in enumerate(instances)]
    return _request(exchange, model, instances, "instances")


def _request(
    exchange: Exchange, model: ServedModel, instances: Sequence[Any], place: str
) -> rows.Request:
    if len(instances) > model.max_rows:
        raise too_many_rows(model.max_rows, len(instances))
    assert model.user_code is not None
    if exchange.capture is not None and not model.has_tensors:
        # Before preprocess, which may change them.
        exchange.instances = json_lines(instances)
    check = exchange.check_awaited
    inputs = model.user_code.inputs_of(instances, place, check)
    return rows.Request(DEFAULT_SIGNATURE, inputs)


def _decoded(instance: Any, number: int) -> Any:
    """Return the bytes of {"b64": ...}, and any other instance as it is."""
    if not strings.is_b64(instance):
        return instance
    try:
        return strings.to_bytes(instance)
    except ValueError as error:
        raise BadInput(f"instances[{number}]: not base64: {error}") from None
