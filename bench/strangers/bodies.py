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
# The largest body that the server takes, without what is around the rows.
MOST_BYTES = (64 << 20) - 1000
# Values of a row of the model `large`.
LARGE_ROW = 1 << 18
_GOOD_ROWS = 156_504


def packed(start: str, part: str, end: str = "]}", path: str = "/predict") -> Request:
    """Return 60 MiB of JSON as gzip: `start`, `part` repeated, `end`."""
    return _gzip(start + part * (_UNPACKED_BYTES // len(part)) + end, path)


def packed_strings() -> Request:
    """Return empty strings and one Infinity, for the signature `pack`."""
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
    return Request(0, saved(image, "PNG"), content_type="image/png", tag="picture")


def webp_form() -> Request:
    """Return a form of lossless WebP of one color."""
    webp = saved(Image.new("RGB", _SIDES), "WEBP", lossless=True, quality=0, method=0)
    body, named = form(*[webp] * _FILES)
    return Request(0, body, content_type=named["Content-Type"])


def jpeg_form() -> Request:
    """Return a form of progressive JPEGs with many scans, as gzip."""
    jpeg = saved(Image.new("RGB", _SIDES), "JPEG", progressive=True)
    body, named = form(*[with_scans(jpeg, _SCANS)] * _FILES)
    return _gzip(body, content_type=named["Content-Type"])


def with_scans(jpeg: bytes, scans: int) -> bytes:
    """Return a progressive JPEG whose last scan is repeated, up to `scans` in all."""
    end = len(jpeg) - 2
    last = jpeg[jpeg.rfind(b"\xff\xc4") : end]
    return jpeg[:end] + last * (scans - jpeg.count(b"\xff\xda")) + jpeg[end:]


def floats(size: int, key: bytes = b"instances") -> Request:
    """Return `size` bytes of rows of floats in JSON, or of `inputs`, which are columns.

    They are honest: valid for the model `large`.
    """
    body = b'{"%s":[%s]}' % (key, b",".join(_rows(size)))
    return Request(0, body, path="/v1/models/large:predict")


def floats_v2(size: int) -> Request:
    """Return the same rows as a flat tensor of V2."""
    rows = _rows(size)
    shape = b"[%d,%d]" % (len(rows), LARGE_ROW)
    start = b'{"inputs":[{"name":"input","datatype":"FP32","shape":%s,"data":[' % shape
    body = start + b",".join(row[1:-1] for row in rows) + b"]}]}"
    return Request(0, body, path="/v2/models/large/infer")


@cache
def _rows(size: int) -> list[bytes]:
    chance = Random(1)  # noqa: S311 # the same at each run
    row = ",".join(f"{chance.uniform(-1, 1):.6f}" for _ in range(LARGE_ROW))
    return [f"[{row}]".encode()] * (size // (len(row) + 3))


def _gzip(
    body: str | bytes, path: str = "/predict", content_type: str = "application/json"
) -> Request:
    data = gzip.compress(body.encode() if isinstance(body, str) else body)
    header = "Content-Encoding: gzip\r\n"
    return Request(0, data, headers=header, path=path, content_type=content_type)
