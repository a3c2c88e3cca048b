"""TensorFlow Serving's REST API for predictions, and the additions of KServe's V1.

The pattern is TensorFlow Serving's. It matches the path as it was sent: a name is
decoded after the match, so that it may contain / and :, and is only looked up in the
catalog.
"""

import re
from urllib.parse import unquote_to_bytes

from app.call import Call, Head, Reply
from app.codec import json_text, rows
from app.engines.base import Tensors
from app.errors import BadInput
from app.protocols import cloud_events, forms, service_instances
from app.protocols.describe import explained
from app.protocols.protocol import Protocol, begins_with, finishes_with
from app.repository.routing import Target
from app.settings.model_files import MAX_VERSION

PREFIXES = ("/v1/", "/V1/")
VERSION = r"(?:/versions/(?P<version>[0-9]+)|/labels/(?P<label>[^/:]+))?"
VERB_PATH = re.compile(
    rf"/v1/models/(?P<name>[^/:]+){VERSION}:(?P<verb>predict|classify|regress|explain)",
    re.IGNORECASE,
)


def _find(head: Head) -> Target | None:
    """Return the model in the path of a :predict, None for other paths.

    Raises:
        BadInput: its version is no number that fits.
    """
    if not head.path.startswith(PREFIXES):
        return None
    found = VERB_PATH.fullmatch(head.raw_path)
    if found is None or found["verb"].lower() != "predict":
        return None
    return target_of(found)


def target_of(found: re.Match[str]) -> Target:
    """Return the model that a path names.

    Raises:
        BadInput: its version is no number that fits.
    """
    digits = found["version"]
    version = None
    if digits is not None:
        significant = digits.lstrip("0") or "0"
        # Shortened, as int() takes at most 4300 digits.
        version = int(significant[:20])
        if version > MAX_VERSION:
            raise BadInput(f"Failed to convert version: {digits[:40]} to numeric.")
    return Target(_decoded(found["name"]), version, _decoded(found["label"]))


def _decoded(part: str | None) -> str | None:
    if part is None:
        return None
    return unquote_to_bytes(part.encode("latin-1", "replace")).decode(errors="replace")


def _decode(call: Call, body: bytes) -> rows.Request:
    model, mimetype = call.model, call.asks.mimetype
    by_service, image, bounds = model.reads_instances, model.config.image, call.bounds()
    # Any Content-Type may stand beside JSON, as in TensorFlow Serving.
    is_json = body.startswith(b"{")
    if not by_service and not is_json and forms.has_pictures(mimetype, body):
        return forms.decode(call, body)
    if mimetype == cloud_events.STRUCTURED:
        opened = json_text.opened_whole if by_service else json_text.opened
        with opened(body, bounds.check, ignore_tail=True) as event:
            data = cloud_events.data_of(event)
            if not isinstance(data, bytes):
                if by_service:
                    return service_instances.read(call, data)
                return rows.read(data, body, model.signatures, image, bounds)
        body = data
    if by_service:
        return service_instances.decode(call, body, ignore_tail=True)
    # As TensorFlow Serving does.
    return rows.decode(body, model.signatures, image, bounds, ignore_tail=True)


def _encode(call: Call, outputs: Tensors) -> Reply:
    """Return predictions as the request was formed, as an event if it was one."""
    model = call.model
    if model.user_code is not None and model.writes_predictions:
        body = model.user_code.body_of(outputs)
    else:
        body = rows.encode(outputs, call.decoded.form)
    return cloud_events.reply_of(call, body)


PREDICT = Protocol(
    find=_find,
    begin=begins_with(_decode),
    finish=finishes_with(_encode),
    explain=explained,
    calls_service=True,
)
