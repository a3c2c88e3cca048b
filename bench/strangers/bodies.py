"""Requests that are small to send and expensive to answer, all deterministic."""

import gzip
from functools import cache
from random import Random

import numpy as np
from PIL import Image

from testing.open_loop_requests import Request
from testing.pictures import form, saved

# One picture has nearly 40 megapixels.
_SIDES = (16_000, 2490)
_FILES = 64
_SCANS = 64
_UNPACKED_BYTES = 60 << 20
# The largest body that the server takes, and bytes for what is around the rows.
_MOST_BYTES = (64 << 20) - 1000
_LARGE_BYTES = 20 << 20
# Values of a row of the model `large`.
LARGE_ROW = 1 << 18
_GOOD_ROWS = 156_504
_LARGE_PATH = "/v1/models/large:predict"
_GZIP = "Content-Encoding: gzip\r\n"


def packed(start: str, part: str, end: str, path: str = "/predict") -> Request:
    """Return 60 MiB of JSON as gzip: `start`, `part` repeated, `end`."""
    return _gzip(start + part * (_UNPACKED_BYTES // len(part)) + end, path)


def packed_rows(row: str, last: str = "") -> Request:
    """Return 60 MiB of a row repeated, and `last`, as gzip."""
    return packed('{"instances":[', f"{row},", f"{last or row}]}}")


def packed_strings() -> Request:
    """Return 60 MiB of empty strings and one Infinity, for the signature `pack`."""
    start = '{"signature_name":"pack","instances":['
    return packed(start, '"",', "Infinity]}", "/v1/models/till:predict")


def brackets() -> Request:
    """Return 60 MiB of brackets as gzip."""
    half = _UNPACKED_BYTES // 2
    return _gzip('{"instances":' + "[" * half + "]" * half + "}")


def good_rows() -> Request:
    """Return rows that are valid for the digits model, as gzip."""
    values = ["0.25" if n % 5 else "0" for n in range(64)]
    lines = ["],[".join(values[begin : begin + 8]) for begin in range(0, 64, 8)]
    row = f"[[[{']],[['.join(lines)}]]]"
    return _gzip('{"instances":[' + ",".join([row] * _GOOD_ROWS) + "]}")


def digit() -> Request:
    """Return one row of the digits model."""
    row = np.linspace(0, 1, 64).round(2).reshape(8, 8, 1).tolist()
    return Request(0, f'{{"instances":[{row}]}}'.encode())


def small_png() -> Request:
    """Return a small picture."""
    image = Image.linear_gradient("L").resize((12, 9))
    return Request(0, saved(image, "PNG"), content_type="image/png")


def webp_form() -> Request:
    """Return a form of lossless WebP of one color."""
    webp = saved(Image.new("RGB", _SIDES), "WEBP", lossless=True, quality=0, method=0)
    body, named = form(*[webp] * _FILES)
    return Request(0, body, content_type=named["Content-Type"])


def jpeg_form() -> Request:
    """Return a form of progressive JPEGs with many scans, as gzip."""
    jpeg = saved(Image.new("RGB", _SIDES), "JPEG", progressive=True)
    body, named = form(*[with_scans(jpeg, _SCANS)] * _FILES)
    packed_body, kind = gzip.compress(body), named["Content-Type"]
    return Request(0, packed_body, headers=_GZIP, content_type=kind)


def with_scans(jpeg: bytes, scans: int) -> bytes:
    """Return a progressive JPEG whose last scan is repeated, up to `scans` in all."""
    end = len(jpeg) - 2
    last = jpeg[jpeg.rfind(b"\xff\xc4") : end]
    return jpeg[:end] + last * (scans - jpeg.count(b"\xff\xda")) + jpeg[end:]


def large(size: int = _LARGE_BYTES) -> Request:
    """Return `size` bytes of rows of floats in JSON."""
    return Request(0, b'{"instances":[%s]}' % b",".join(_rows(size)), path=_LARGE_PATH)


def largest_rows() -> Request:
    """Return rows as large as the server takes."""
    return large(_MOST_BYTES)


def largest_columns() -> Request:
    """Return the same rows as V1's columnar `inputs`."""
    body = b'{"inputs":[%s]}' % b",".join(_rows(_MOST_BYTES))
    return Request(0, body, path=_LARGE_PATH)


def largest_v2() -> Request:
    """Return the same rows as a flat tensor of V2."""
    rows = _rows(_MOST_BYTES)
    shape = b"[%d,%d]" % (len(rows), LARGE_ROW)
    start = b'{"inputs":[{"name":"input","datatype":"FP32","shape":%s,"data":[' % shape
    body = start + b",".join(row[1:-1] for row in rows) + b"]}]}"
    return Request(0, body, path="/v2/models/large/infer")


@cache
def _rows(size: int) -> list[bytes]:
    """Return as many rows of the model `large` as `size` bytes hold, in JSON."""
    chance = Random(1)  # noqa: S311 # the same at each run
    row = ",".join(f"{chance.uniform(-1, 1):.6f}" for _ in range(LARGE_ROW))
    return [f"[{row}]".encode()] * (size // (len(row) + 3))


def _gzip(text: str, path: str = "/predict") -> Request:
    return Request(0, gzip.compress(text.encode()), path=path, headers=_GZIP)
