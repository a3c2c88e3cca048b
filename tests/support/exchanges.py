"""Bodies of requests, and checks of error responses."""

import io
from typing import Any

from numpy.lib import format as npy_format

from app.engines.base import Array


def npy_of(array: Array, version: tuple[int, int] = (1, 0)) -> bytes:
    """Return the array as a .npy file of this version of the format."""
    file = io.BytesIO()
    npy_format.write_array(file, array, version)
    return file.getvalue()


def error(reply: Any, status: int) -> str:
    """Return the text of an error response, after checks of its form."""
    assert reply.status_code == status, reply.text
    assert reply.mimetype == "application/json"
    assert list(reply.json) == ["error"]
    assert "Traceback" not in reply.text
    text: str = reply.json["error"]
    return text
