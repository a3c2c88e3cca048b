"""python -m bench.picture_costs [RESIZE]: what decoding a picture costs, by its format.

Each picture is decoded in a process of its own, as for a model of 224 x 224 RGB pixels,
from the bytes of its file to the row. RESIZE is that of basket.toml. Prints a table:
for each pixel of the file its bytes, CPU time and the peak of memory, with the
estimates of both, how many megapixels of it a request may have, and how long another
thread waited for Python's lock at most.
"""

import struct
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from app.codec import images
from app.codec.memory_budget import MemoryBudget
from app.codec.pictures.files import Reads
from app.engines.base import TensorSpec
from app.settings.image_config import LOAD_IMG, ImageConfig
from testing.pictures import saved

_RESIZE = sys.argv[1] if sys.argv[1:] else LOAD_IMG
_CONFIG = ImageConfig((224, 224), "RGB", "none", "bilinear", (), _RESIZE)
_SPEC = TensorSpec("image", np.dtype("u1"), _CONFIG.shape())
_SIDES = (3000, 2000)
_ROUNDS = 3


def _photo() -> np.ndarray:
    """Return waves with a camera's noise: a JPEG of about 0.25 bytes for each pixel."""
    random = np.random.default_rng(0)
    width, height = _SIDES
    down, across = np.mgrid[0:height, 0:width]
    waves = [
        np.sin(across / (50 + 9 * color)) + np.cos(down / (70 - 5 * color))
        for color in range(3)
    ]
    noise = random.normal(0, 6, (height, width, 3))
    return (np.stack(waves, -1) * 60 + 127 + noise).clip(0, 255).astype(np.uint8)


def _noise() -> np.ndarray:
    random = np.random.default_rng(0)
    return random.integers(0, 256, (*_SIDES[::-1], 3), np.uint8)


def _flat() -> np.ndarray:
    return np.full((*_SIDES[::-1], 3), (10, 200, 30), np.uint8)


_SOURCES: dict[str, Callable[[], np.ndarray]] = {
    "one color": _flat,
    "photo": _photo,
    "noise": _noise,
}


class _Kind(NamedTuple):
    """A row of the table: how a picture is saved."""

    format: str
    mode: str = "RGB"
    options: dict[str, Any] = {}  # noqa: RUF012 # never changed


def _rotated() -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = 6
    return exif


_KINDS = {
    "JPEG, at 1/2": _Kind("JPEG", options={"quality": 90}),
    "JPEG, rotated": _Kind("JPEG", options={"quality": 90, "exif": _rotated()}),
    "JPEG 4:4:4": _Kind("JPEG", options={"quality": 100, "subsampling": 0}),
    "JPEG, CMYK": _Kind("JPEG", "CMYK", {"quality": 90}),
    "JPEG, progressive": _Kind("JPEG", options={"quality": 90, "progressive": True}),
    "PNG, RGB": _Kind("PNG", options={"compress_level": 1}),
    "PNG, RGBA": _Kind("PNG", "RGBA", {"compress_level": 1}),
    "PNG, rotated": _Kind("PNG", options={"compress_level": 1, "exif": _rotated()}),
    "PNG, palette": _Kind("PNG", "P", {"compress_level": 1}),
    "PNG, 16-bit gray": _Kind("PNG", "I;16", {"compress_level": 1}),
    "WebP, lossless": _Kind("WEBP", options={"lossless": True, "method": 1}),
    "WebP, lossless RGBA": _Kind("WEBP", "RGBA", {"lossless": True, "method": 1}),
    "WebP": _Kind("WEBP", options={"quality": 90, "method": 1}),
    "WebP, RGBA": _Kind("WEBP", "RGBA", {"quality": 90, "method": 1}),
    "WebP, animated": _Kind("WEBP", options={"quality": 90, "method": 1, "frames": 2}),
    "GIF": _Kind("GIF", "P"),
    "GIF, animated": _Kind("GIF", "P", {"frames": 2}),
    "BMP": _Kind("BMP"),
}


def _file(pixels: np.ndarray, kind: _Kind) -> bytes:
    image = Image.fromarray(pixels)
    if kind.mode == "I;16":
        image = Image.fromarray(pixels[..., 0].astype(np.uint16) << 8 | pixels[..., 1])
    elif kind.mode == "RGBA":
        image.putalpha(image.getchannel(0))
    else:
        image = image.convert(kind.mode)
    options = dict(kind.options)
    if options.pop("frames", 1) > 1:
        turned = image.transpose(Image.Transpose.ROTATE_180)
        options |= {"save_all": True, "append_images": [turned]}
    return saved(image, kind.format, **options)


def _chunk(name: bytes, data: bytes) -> bytes:
    check = zlib.crc32(name + data)
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", check)


def _png(bits: int, channels: int, color: int, interlaced: int) -> bytes:
    """Return a black PNG, each line filtered by Paeth's predictor."""
    width, height = _SIDES
    header = struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, interlaced)
    sizes = [(width, height)]
    if interlaced:  # the seven passes of Adam7: first column and row, and steps
        passes = ["0088", "4088", "0448", "2044", "0224", "1022", "0112"]
        steps = [tuple(map(int, each)) for each in passes]
        sizes = [
            (-((x - width) // right), -((y - height) // down))
            for x, y, right, down in steps
        ]
    lines = b"".join(
        (b"\x04" + bytes(-(-across * channels * bits // 8))) * down
        for across, down in sizes
    )
    data = _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(lines, 1))
    return b"\x89PNG\r\n\x1a\n" + data + _chunk(b"IEND", b"")


def _scans(pixels: np.ndarray) -> bytes:
    """Return a progressive JPEG with its last scan repeated: 64 in all."""
    options = {"quality": 50, "progressive": True, "subsampling": 0}
    data = _file(pixels, _Kind("JPEG", options=options))
    scan = data[data.rindex(b"\xff\xda") : -2]
    return data[:-2] + scan * (64 - data.count(b"\xff\xda")) + data[-2:]


def _rle_bmp() -> bytes:
    """Return a BMP of which each line has one run of one pixel."""
    width, height = _SIDES
    lines = b"\x01\x07\x00\x00" * height
    palette = bytes(1024)
    info = struct.pack(
        "<IiiHHIIiiII", 40, width, height, 1, 8, 1, len(lines), 0, 0, 256, 0
    )
    offset = 14 + len(info) + len(palette)
    head = b"BM" + struct.pack("<IHHI", offset + len(lines), 0, 0, offset)
    return head + info + palette + lines


def _pictures() -> "dict[str, dict[str, bytes]]":
    """Return files by format and by what is in them."""
    files: dict[str, dict[str, bytes]] = {name: {} for name in _KINDS}
    files |= {name: {} for name in ("JPEG, 64 scans",)}
    for source, make in _SOURCES.items():
        pixels = make()
        for name, kind in _KINDS.items():
            files[name][source] = _file(pixels, kind)
        files["JPEG, 64 scans"][source] = _scans(pixels)
    files["PNG, interlaced"] = {"one color": _png(8, 3, 2, 1)}
    files["PNG, 16-bit RGBA"] = {"one color": _png(16, 4, 6, 0)}
    files["BMP, run lengths"] = {"one color": _rle_bmp()}
    return files


def _decode(data: bytes) -> None:
    images.decode([data], _CONFIG, _SPEC, "picture")


def _longest_wait_s(data: bytes) -> float:
    """Return by how much decoding delays another thread that sleeps for 1 ms."""
    done, waits = Event(), [0.0]

    def tick() -> None:
        while not done.is_set():
            began = time.perf_counter()
            time.sleep(0.001)
            waits.append(time.perf_counter() - began - 0.001)

    thread = Thread(target=tick)
    thread.start()
    _decode(data)
    done.set()
    thread.join()
    return max(waits)


def _peak_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status has no VmHWM")


def _measure(file: Path) -> None:
    """Print ns and bytes for each pixel, the estimates of both, and ms of waiting."""
    data = file.read_bytes()
    # Limits aside: what they refuse is measured too.
    images._MAX_SECONDS = images._MAX_MEMORY = 1 << 40
    images._short = images._long = MemoryBudget(1 << 40, 0, "")
    _decode(saved(Image.new("RGB", (9, 9))))
    estimate = images._cost_of(data, _CONFIG, "", Reads())
    Path("/proc/self/clear_refs").write_text("5")
    before = _peak_bytes()
    _decode(data)
    peak = _peak_bytes() - before
    times = []
    for _ in range(_ROUNDS):
        began = time.process_time()
        _decode(data)
        times.append(time.process_time() - began)
    pixels = _SIDES[0] * _SIDES[1]
    print(
        *(min(times) / pixels * 1e9, estimate.seconds / pixels * 1e9),
        *(peak / pixels, estimate.memory / pixels, _longest_wait_s(data) * 1e3),
    )


def _row(name: str, source: str, data: bytes) -> str:
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        output = subprocess.run(  # noqa: S603
            [sys.executable, "-m", "bench.picture_costs", _RESIZE, file.name],
            check=True,
            capture_output=True,
        ).stdout
    ns, ns_estimate, size, size_estimate, wait_ms = map(float, output.split())
    per_pixel = len(data) / _SIDES[0] / _SIDES[1]
    return (
        f"| {name} | {source} | {per_pixel:.3f} | {ns:.1f} | {ns_estimate:.1f} "
        f"| {images._MAX_SECONDS / ns_estimate * 1e3:.0f} | {size:.1f} "
        f"| {size_estimate:.1f} | {wait_ms:.0f} |"
    )


def main() -> None:
    """Print the table."""
    if sys.argv[2:]:
        _measure(Path(sys.argv[2]))
        return
    print(
        "| picture | of | file (bytes) | CPU (ns) | estimate (ns) "
        "| allowed (megapixels) | memory (bytes) | estimate (bytes) | wait (ms) |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for name, files in _pictures().items():
        for source, data in files.items():
            print(_row(name, source, data), flush=True)


if __name__ == "__main__":
    main()
