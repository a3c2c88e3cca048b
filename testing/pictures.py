"""Make pictures and multipart forms."""

import io
import itertools
import struct
import zlib
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from PIL import Image


@cache
def colors(width: int = 37, height: int = 23, seed: int = 0) -> np.ndarray:
    """Return pixels (height, width, 3): waves from the seed with a little noise."""
    random = np.random.default_rng(seed)
    across, down = np.meshgrid(np.linspace(0, 1, width), np.linspace(0, 1, height))
    waves = [
        np.sin(2 * np.pi * (x * across + y * down + begin))
        for x, y, begin in random.uniform(0.2, 2, (3, 3))
    ]
    noise = random.normal(0, 4, (height, width, 3))
    pixels = np.clip(np.stack(waves, -1) * 115 + 127 + noise, 0, 255).astype(np.uint8)
    pixels.setflags(write=False)
    return pixels


def picture(
    mode: str = "RGB", width: int = 37, height: int = 23, seed: int = 0
) -> Image.Image:
    """Return a picture of `colors` in any mode; alpha rises from left to right."""
    image = Image.fromarray(colors(width, height, seed))
    if mode in ("RGBA", "LA", "PA"):
        fade = np.linspace(0, 255, width).astype(np.uint8)
        image.putalpha(Image.fromarray(np.tile(fade, (height, 1))))
    return image.quantize(32) if mode == "P" else image.convert(mode)


def saved(image: Image.Image | np.ndarray, kind: str = "PNG", **options: Any) -> bytes:
    """Return the bytes of a file of that kind, such as PNG."""
    if isinstance(image, np.ndarray):
        image = Image.fromarray(image)
    if kind == "PNG":
        options = {"compress_level": 1} | options
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def form(
    *files: bytes, field: str = "file", boundary: str = "edge", end: str = "\r\n"
) -> tuple[bytes, dict[str, str]]:
    """Return a form's body and headers; its parts have no Content-Type.

    With an empty `end` the last boundary has no line break, as in scripts for wrk.
    """
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{field}"; '
        f'filename="{number}.jpg"\r\n\r\n'.encode()
        + file
        + b"\r\n"
        for number, file in enumerate(files)
    ]
    body = b"".join(parts) + f"--{boundary}--{end}".encode()
    return body, {"Content-Type": f"multipart/form-data; boundary={boundary}"}


def png_chunk(name: bytes, data: bytes) -> bytes:
    """Return a chunk of a PNG."""
    check = zlib.crc32(name + data)
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", check)


def of_size(data: bytes, width: int, height: int) -> bytes:
    """Return a PNG or a JPEG whose header has another size, but not its pixels."""
    if data.startswith(b"\xff\xd8"):
        # Marker, length and precision come before the height.
        at = data.index(b"\xff\xc0") + 5
        return data[:at] + struct.pack(">HH", height, width) + data[at + 4 :]
    header = struct.pack(">II", width, height) + data[24:29]
    return data[:8] + png_chunk(b"IHDR", header) + data[33:]


def flat_webp(width: int, height: int) -> bytes:
    """Return a lossless WebP of one color, of 38 bytes, without making its pixels."""
    data = bytearray(
        saved(Image.new("RGB", (16, 16), (10, 200, 30)), "WEBP", lossless=True)
    )
    (bits,) = struct.unpack_from("<I", data, 21)
    # Width and height, less 1, in 14 bits each.
    struct.pack_into("<I", data, 21, bits >> 28 << 28 | height - 1 << 14 | width - 1)
    return bytes(data)


def many_scans(width: int, height: int, scans: int = 64) -> bytes:
    """Return a progressive JPEG whose last scan is repeated."""
    data = saved(Image.new("RGB", (width, height)), "JPEG", progressive=True)
    scan = data[data.rindex(b"\xff\xda") : -2]
    return data[:-2] + scan * (scans - data.count(b"\xff\xda")) + data[-2:]


def tiff_of(
    width: int,
    height: int,
    *pieces: bytes,
    tags: Mapping[int, Sequence[int]] | None = None,
    lengths: Sequence[int] = (),
    order: str = "<",
) -> bytes:
    """Return a TIFF of strips, of 8-bit RGB unless `tags` say otherwise.

    `lengths` are those that the file claims; a tag of no values is left out.
    """
    given = dict(tags or {})
    offsets, sizes = (324, 325) if 322 in given else (273, 279)
    entries: dict[int, Sequence[int]] = {
        **{256: [width], 257: [height], 258: [8, 8, 8], 262: [2], 277: [3]},
        **given,
        offsets: [0] * len(pieces),
        sizes: lengths or [len(piece) for piece in pieces],
    }
    entries = {tag: entries[tag] for tag in sorted(entries) if entries[tag]}
    values_at = 8 + 2 + 12 * len(entries) + 4
    data_at = values_at + sum(4 * len(each) for each in entries.values())
    ends = itertools.accumulate(map(len, pieces), initial=data_at)
    entries[offsets] = list(ends)[:-1]
    directory, values = [struct.pack(f"{order}H", len(entries))], b""
    for tag, each in entries.items():
        packed = struct.pack(f"{order}{len(each)}I", *each)
        place = struct.pack(f"{order}I", values_at + len(values))
        head = struct.pack(f"{order}HHI", tag, 4, len(each))
        directory.append(head + (packed if len(each) == 1 else place))
        values += packed
    begin = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}I", 8)
    padding = b"\0" * (data_at - values_at - len(values))
    return b"".join([begin, *directory, bytes(4), values, padding, *pieces])
