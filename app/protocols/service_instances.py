"""Requests to a model whose service.py makes rows of their instances."""

from collections.abc import Sequence
from typing import Any

from app.call import Call
from app.codec import json_objects, json_text, npy, rows, strings
from app.engines.base import DEFAULT_SIGNATURE
from app.errors import BadInput, too_many_rows
from app.protocols import forms

_EXPECTED = 'expected a JSON object: {"instances": [instance, ...]}'


def decode(call: Call, body: bytes, *, ignore_tail: bool = False) -> rows.Request:
    """Return the rows that preprocess makes of a body's instances.

    These are values of {"instances": [...]}, files of a form, a picture as the whole
    body, or the rows of a .npy.

    Raises:
        BadInput: no instances, or preprocess refuses one.
        TooLarge: too many instances.
        ModelFailed: preprocess fails, or gives what the model does not take.
        BasketError: nobody waits for the answer any more.
    """
    mimetype, max_rows = call.asks.mimetype, call.model.max_rows
    if mimetype == npy.CONTENT_TYPE:
        # A copy, which preprocess may change.
        rows_of_body = list(npy.read_rows(body, max_rows).copy())
        return _request(call, rows_of_body, "rows")
    if not body.startswith(b"{") and forms.has_pictures(mimetype, body):
        files = [bytes(file) for file in forms.files(call, body)]
        return _request(call, files, "picture")
    check = call.check_awaited
    with json_text.opened_whole(body, check, ignore_tail=ignore_tail) as payload:
        return read(call, payload)


def read(call: Call, payload: Any) -> rows.Request:
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
    for number, instance in enumerate(instances):
        if strings.is_b64(instance):
            try:
                instances[number] = strings.to_bytes(instance)
            except ValueError as error:
                raise BadInput(f"instances[{number}]: not base64: {error}") from None
    return _request(call, instances, "instances")


def _request(call: Call, instances: Sequence[Any], place: str) -> rows.Request:
    model = call.model
    if len(instances) > model.max_rows:
        raise too_many_rows(model.max_rows, len(instances))
    assert model.user_code is not None
    if call.capture is not None and not model.has_tensors:
        # Before preprocess, which may change them.
        call.instances = json_objects.lines(instances)
    inputs = model.user_code.inputs_of(instances, place, call.check_awaited)
    return rows.Request(DEFAULT_SIGNATURE, inputs)
