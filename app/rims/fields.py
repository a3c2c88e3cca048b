"""Header fields: from pairs to the headers of a `Head`, and on to WSGI's variables."""

from collections.abc import Iterator, Mapping

_WITHOUT_PREFIX = ("CONTENT_TYPE", "CONTENT_LENGTH")


def add_field(headers: dict[str, str], name: bytes, value: bytes) -> None:
    """Add a field; the values of repeated ones are joined by commas.

    A name with an underscore could pass for another name in WSGI's variables: such a
    field is dropped, as in nginx.
    """
    if b"_" not in name:
        key, text = name.lower().decode("latin-1"), value.decode("latin-1")
        headers[key] = f"{headers[key]},{text}" if key in headers else text


def from_wsgi(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the headers of WSGI's variables."""
    for name, value in environ.items():
        if name.startswith("HTTP_") or (name in _WITHOUT_PREFIX and value):
            yield name.removeprefix("HTTP_").replace("_", "-").lower(), value


def to_wsgi(headers: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield WSGI's variables for headers."""
    for name, value in headers.items():
        variable = name.upper().replace("-", "_")
        yield variable if variable in _WITHOUT_PREFIX else f"HTTP_{variable}", value
