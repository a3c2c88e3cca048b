"""What a head asks for: time, client, and the form of body and answer."""

import pytest

from app.call import Head
from app.errors import BadInput
from app.serving.asks import Asks

LIMIT_MS = 30_000


def asks(method="POST", **headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Asks(Head(method, "/predict", "", named), LIMIT_MS, 1 << 20)


@pytest.mark.parametrize(
    ("headers", "client"),
    [
        ({}, ""),
        ({"x_client_id": "till 7"}, "till 7"),
        ({"authorization": "Bearer key"}, "key"),
        ({"authorization": "Bearer key", "x_client_id": "till 7"}, "key"),
        ({"authorization": "Bearer", "x_client_id": "till 7"}, "till 7"),
    ],
)
def test_key_comes_before_the_client_id(headers, client):
    """Its bearer could choose a new X-Client-Id for each call."""
    assert asks(**headers).client_key == client


@pytest.mark.parametrize(
    ("headers", "is_plain"),
    [
        ({}, True),
        ({"content_type": "application/json"}, True),
        ({"content_type": "Application/JSON; charset=utf-8"}, True),
        ({"content_type": "text/plain"}, True),
        ({"accept": "application/json"}, True),
        ({"content_type": "application/x-npy"}, False),
        ({"content_type": "multipart/form-data; boundary=x"}, False),
        ({"content_type": "Image/JPEG"}, False),
        ({"content_type": "application/cloudevents+json"}, False),
        ({"content_encoding": "gzip"}, False),
        ({"accept": "text/html, application/X-NPY"}, False),
        ({"ce_specversion": "1.0"}, False),
    ],
    ids=str,
)
def test_other_types_are_no_plain_rows(headers, is_plain):
    """Bodies, answers and events of other forms are left to their codecs."""
    assert asks(**headers).is_plain is is_plain


@pytest.mark.parametrize(
    ("given", "timeout_s"),
    [("1", 0.001), ("500", 0.5), ("0500", 0.5), ("60000", 30), ("9" * 5000, 30)],
)
def test_own_timeout_only_shortens_the_servers(given, timeout_s):
    """Of any number of digits."""
    found = asks(x_request_timeout_ms=given)
    assert (found.timeout_s, found.error) == (timeout_s, None)


@pytest.mark.parametrize("given", ["", "0", "-1", "1.5", "²", "1e3"])
def test_malformed_timeout_is_an_error_of_calls_that_predict(given):
    """Other calls have no deadline."""
    assert isinstance(asks(x_request_timeout_ms=given).error, BadInput)
    assert asks("GET", x_request_timeout_ms=given).error is None
