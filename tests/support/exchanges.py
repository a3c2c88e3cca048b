"""Clients of an application, bodies of requests, and checks of error responses."""

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from numpy.lib import format as npy_format

from app import create_app
from app.engines.base import Array
from app.settings import Settings


@contextlib.contextmanager
def started_client(folder: Path, **settings: Any) -> Iterator[Any]:
    """Start an application with the models of a folder, and give a client of it."""
    server = create_app(Settings(model_dir=folder, **settings))
    loader = server.loader
    loader.start()
    try:
        assert loader.wait(10)
        yield server.flask.test_client()
    finally:
        loader.close(10)


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
