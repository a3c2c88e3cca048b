"""Images instead of rows: files of a multipart form, or the whole body.

Forms are parsed here. Werkzeug's multipart parser looks for line breaks of all kinds
and so takes ten times as long for an image's bytes, all of it under Python's lock.
"""

from collections.abc import Iterator, Sequence

from werkzeug.http import parse_options_header

from app.call import Call
from app.codec.pictures import images
from app.codec.pictures.files import BEGINNINGS
from app.codec.pictures.images import MAX_PICTURES
from app.codec.rows import Request
from app.engines.base import DEFAULT_SIGNATURE
from app.errors import BadInput, TooLarge

FIELD = "file"
_FORM = "multipart/form-data"
# Of one part. Browsers send some hundred bytes; thousands take milliseconds to parse.
_MAX_HEADER_BYTES = 8 << 10
# Parts of a form beside its images.
_OTHER_PARTS = 16
_NAMES_SHOWN = 8
_BREAK = b"\r\n"


class Pictures(Request):
    """A request whose rows were images."""


def has_pictures(mimetype: str, body: bytes) -> bool:
    """Return whether a body is an image, or a form that may have some.

    Its first bytes tell as well as its type, which `curl --data-binary` does not know.
    """
    is_typed = mimetype == _FORM or mimetype.startswith("image/")
    # HEIC and AVIF, which are refused, begin with the length of a box.
    is_heic = body[4:8] == b"ftyp"
    return is_typed or is_heic or body.startswith(BEGINNINGS)


def decode(call: Call, body: bytes) -> Pictures:
    """Return the images of a body for which `has_pictures` is true.

    Raises:
        BadInput: the model takes none, or one is malformed.
        TooLarge: too many images, or they cost too much.
        BasketError: nobody waits for the answer any more.
    """
    model = call.model
    config = model.config.image
    if config is None:
        raise BadInput(
            f"model {model.name!r} takes no pictures: its basket.toml has no [image] "
            "with size, mode and scale"
        )
    (spec,) = model.signatures[DEFAULT_SIGNATURE].inputs
    check, pixels = call.check_awaited, None
    if call.small_jpeg is not None and call.head.asks.mimetype != _FORM:
        check()
        pixels = images.decode_small(body, call.small_jpeg, config, spec.dtype)
    if pixels is None:
        found = files(call, body)
        pixels = images.decode(found, config, spec, "picture", check=check)
    return Pictures(DEFAULT_SIGNATURE, {spec.name: pixels})


def files(call: Call, body: bytes) -> Sequence[bytes | memoryview]:
    """Return the image files of a form, or the body.

    Those of a form are views of the body, as together they are as large as it.

    Raises:
        BadInput: a malformed form, or one without a file in the field `file`.
        TooLarge: too many parts.
    """
    if call.asks.mimetype != _FORM:
        return [body]
    _, parameters = parse_options_header(call.header("content-type"))
    boundary = parameters.get("boundary")
    if not boundary:
        raise BadInput("multipart/form-data without a boundary")
    found, others = [], []
    for name, is_file, data in _parts(body, boundary.encode()):
        if name == FIELD and is_file:
            found.append(data)
        else:
            others.append(name)
        if len(found) + len(others) > MAX_PICTURES + _OTHER_PARTS:
            raise TooLarge(f"more than {MAX_PICTURES} pictures and fields in one form")
    if not found:
        raise BadInput(_missing(others))
    return found


def _parts(body: bytes, boundary: bytes) -> Iterator[tuple[str, bool, memoryview]]:
    """Yield each part's name, whether it is a file, and its content (RFC 7578)."""
    mark, view = b"--" + boundary, memoryview(body)
    at = 0 if body.startswith(mark) else _find(body, _BREAK + mark, 0) + len(_BREAK)
    # Two hyphens behind the mark end the form; a line break may follow.
    while not body.startswith(b"--", at + len(mark)):
        begin = _find(body, _BREAK, at)
        blank = _find(body, _BREAK + _BREAK, begin)
        if blank - begin > _MAX_HEADER_BYTES:
            raise BadInput(
                f"a part of the form has a header of more than {_MAX_HEADER_BYTES} "
                "bytes"
            )
        # From the blank line on, as a part may be empty.
        end = _find(body, _BREAK + mark, blank + len(_BREAK))
        yield *_disposition(body[begin:blank]), view[blank + 2 * len(_BREAK) : end]
        at = end + len(_BREAK)


def _find(body: bytes, wanted: bytes, begin: int) -> int:
    found = body.find(wanted, begin)
    if found < 0:
        raise BadInput(
            "the body is not the form that its Content-Type says, or is cut off"
        )
    return found


def _disposition(headers: bytes) -> tuple[str, bool]:
    """Return the name in a part's headers, and whether they have a filename."""
    for line in headers.decode(errors="replace").split("\r\n"):
        key, _, value = line.partition(":")
        if key.strip().lower() == "content-disposition":
            options = parse_options_header(value.strip())[1]
            return options.get("name", ""), "filename" in options
    raise BadInput("a part of the form has no Content-Disposition")


def _missing(names: list[str]) -> str:
    if FIELD in names:
        return f'the field "{FIELD}" has no filename, so it is text and not a file'
    shown = ", ".join(name[:40] for name in names[:_NAMES_SHOWN]) or "none"
    return f'no field "{FIELD}" with a picture in the form; fields given: {shown}'
