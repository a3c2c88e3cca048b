"""CloudEvents as requests and responses, as in KServe's V1.

By the HTTP binding of CloudEvents 1.0, in binary mode the event's attributes are
headers and the body is its data; in structured mode the body is the whole event.
"""

import binascii
import uuid
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from app.call import JSON, Call, Reply
from app.codec import json_text
from app.errors import BadInput

STRUCTURED = "application/cloudevents+json"
_REQUIRED = ("specversion", "id", "source", "type")


def data_of(event: Any) -> Any:
    """Return the data of a structured event: bytes from `data_base64`, or JSON's value.

    Raises:
        BadInput: an event without data, or without a required attribute.
    """
    if not isinstance(event, dict):
        raise BadInput("expected a JSON object: a CloudEvent")
    for name in _REQUIRED:
        if not isinstance(event.get(name), str):
            raise BadInput(f"the CloudEvent has no {name!r} that is a string")
    if isinstance(event.get("data_base64"), str):
        try:
            return binascii.a2b_base64(event["data_base64"], strict_mode=True)
        except ValueError as error:
            raise BadInput(f"the CloudEvent's data_base64: {error}") from None
    if "data" not in event:
        raise BadInput("the CloudEvent has no 'data'")
    return event["data"]


def reply_of(call: Call, body: bytes) -> Reply:
    """Return a JSON body as an event if the request is one, in the same mode."""
    is_structured = call.asks.mimetype == STRUCTURED
    headers = call.head.headers
    if not is_structured and any(f"ce-{name}" not in headers for name in _REQUIRED):
        return Reply(body)
    attributes = {
        "specversion": "1.0",
        "id": str(uuid.uuid4()),
        "source": f"io.kserve.inference.{quote(call.model.name, safe='')}",
        "type": "io.kserve.inference.response",
        "time": datetime.now(UTC).isoformat(),
    }
    if is_structured:
        start = json_text.dumps(attributes | {"datacontenttype": JSON})
        return Reply(start.removesuffix(b"}") + b',"data":' + body + b"}", STRUCTURED)
    lines = (f"Ce-{name.title()}: {value}\r\n" for name, value in attributes.items())
    return Reply(body, lines="".join(lines))
