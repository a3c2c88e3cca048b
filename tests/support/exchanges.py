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


def error(response: Any, status: int) -> str:
    """Return the text of an error response, after checks of its form."""
    assert response.status_code == status, response.text
    assert response.mimetype == "application/json"
    assert list(response.json) == ["error"]
    assert "Traceback" not in response.text
    text: str = response.json["error"]
    return text
