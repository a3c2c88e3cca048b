"""POST /predict, for the default or a named model: JSON, .npy, or images."""

import re
from urllib.parse import parse_qs

from werkzeug.http import parse_accept_header

from app.batching.job import Job
from app.call import Call, Head, Reply
from app.codec import classes, npy, rows
from app.engines.base import DEFAULT_SIGNATURE, Tensors
from app.errors import BadInput
from app.protocols import forms, service_instances
from app.protocols.protocol import (
    Protocol,
    job_of,
    plain_body_of,
    plain_job_of,
    unpacked,
)
from app.repository.routing import Target
from app.settings.image_config import ImageConfig

# The second is its name in an older service.
_PATHS = ("/predict", "/stream_predict")


def find(head: Head) -> Target | None:
    """Return the model that the query names, None for other paths."""
    if head.path not in _PATHS:
        return None
    names = parse_qs(head.query, keep_blank_values=True).get("model", [None])
    return Target(names[0])


def begin(call: Call) -> Job:
    """Return the job of a body of any form."""
    job = plain_job_of(call)
    if job is not None:
        return job
    body = unpacked(call)
    return job_of(call, _decode(call, body), len(body))


def _decode(call: Call, body: bytes) -> rows.Request:
    model = call.model
    if model.reads_instances:
        return service_instances.decode(call, body)
    mimetype = call.head.asks.mimetype
    if mimetype == npy.CONTENT_TYPE:
        signature = rows.find_signature(model.signatures, DEFAULT_SIGNATURE)
        inputs = npy.decode(body, signature, model.max_rows)
        form = rows.Form(is_whole=signature.takes_whole_tensors)
        return rows.Request(DEFAULT_SIGNATURE, inputs, form)
    if forms.has_pictures(mimetype, body):
        # Before the pictures are decoded.
        _top(call, model.config.image)
        return forms.decode(call, body)
    return rows.decode(body, model.signatures, model.config.image, call.bounds())


def _top(call: Call, config: ImageConfig | None) -> int | None:
    """Return the number of classes in the query, at most all; None if it has none."""
    text = call.query("top")
    if text is None or config is None:
        return None
    if not config.classes:
        raise BadInput("top: this model has no classes, only predictions")
    if not re.fullmatch("0*[1-9][0-9]{0,8}", text[:100]):
        raise BadInput(f"top: expected a whole number, 1 or more, given {text[:40]!r}")
    return min(int(text), len(config.classes))


def finish(call: Call, outputs: Tensors) -> Reply:
    """Return predictions, or classes for pictures, in the form that is asked for."""
    body = plain_body_of(call, outputs)
    if body is not None:
        return Reply(body)
    model, decoded = call.model, call.decoded
    if model.user_code is not None and model.writes_predictions:
        return Reply(model.user_code.body_of(outputs))
    accept = call.head.headers.get("accept")
    if accept is not None and _wants_npy(accept):
        array = npy.encode(outputs, is_whole=decoded.form.is_whole)
        return Reply(array, npy.CONTENT_TYPE)
    config = model.config.image
    if isinstance(decoded, forms.Pictures) and config is not None and config.classes:
        return Reply(classes.encode(outputs, config.classes, _top(call, config)))
    return Reply(rows.encode(outputs, decoded.form))


def _wants_npy(accept: str) -> bool:
    """Return whether Accept names .npy without q=0; other types are ignored."""
    if "npy" not in accept.lower():
        return False
    return any(
        quality and media_type.partition(";")[0].strip().lower() == npy.CONTENT_TYPE
        for media_type, quality in parse_accept_header(accept)
    )


PREDICT = Protocol(find, begin, finish, rules=_PATHS, calls_service=True)
