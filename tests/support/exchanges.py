"""Bodies that requests carry, and errors that are answered."""

import io
from typing import Any

from numpy.lib import format as npy_format

from app.engines.base import Array


def npy_of(array: Array, version: tuple[int, int] = (1, 0)) -> bytes:
    """The array as a .npy file of this version of the format."""
    file = io.BytesIO()
    npy_format.write_array(file, array, version)
    return file.getvalue()


def error(reply: Any, status: int) -> str:
    """The text of a test client's reply: an error in JSON with nothing beside it."""
    assert reply.status_code == status, reply.text
    assert reply.mimetype == "application/json"
    assert list(reply.json) == ["error"]
    assert "Traceback" not in reply.text
    text: str = reply.json["error"]
    return text
