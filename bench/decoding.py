"""How long a JPEG takes to become a model's row: Pillow's ways and other decoders.

Run `python -m bench.decoding`. The best of several rounds, on one thread. Below the
times stands how far Pillow's shrinking changes a pixel.
"""

import datetime
import io
import os
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from app.codec import images
from app.engines.base import TensorSpec
from app.settings.image_config import ImageConfig
from bench.environments import python_with
from testing.pictures import picture, saved

_SIZES = ((320, 240), (1024, 768), (4000, 3000))
_CONFIG = ImageConfig((96, 96), "RGB", "-1..1", "nearest", ())
_SPEC = TensorSpec("image", np.dtype(np.float32), _CONFIG.shape())
_ROUNDS, _ROUND_S = 7, 0.2
_DECODERS = ("simplejpeg", "opencv-python-headless")
_Decode = Callable[[bytes], object]


def main() -> int:
    """Print the table, in an environment that has the other decoders."""
    if find_spec("simplejpeg") is None:
        python = python_with("decoders", _DECODERS)
        command = [python, "-m", "bench.decoding"]
        root = Path(__file__).parents[1]
        return subprocess.run(command, cwd=root, check=False).returncode  # noqa: S603
    today = datetime.datetime.now(datetime.UTC).date()
    print(f"{today}, {os.cpu_count()} cores; ms for a JPEG, rows of 96 x 96\n")
    print(f"| | {' | '.join(f'{width} x {height}' for width, height in _SIZES)} |")
    print("|---" * (len(_SIZES) + 1) + "|")
    files = [
        saved(picture("RGB", width, height), "JPEG", quality=85)
        for width, height in _SIZES
    ]
    for name, decode in _ways().items():
        times = (f"{_best_ms(decode, file):.2f}" for file in files)
        print(f"| {name} | {' | '.join(times)} |", flush=True)
    changes = " | ".join(str(_largest_change(file)) for file in files)
    print(f"\na shrunk pixel differs from a whole one, of 255, by up to: {changes}")
    return 0


def _ways() -> dict[str, _Decode]:
    import cv2  # noqa: PLC0415
    import simplejpeg  # noqa: PLC0415

    return {
        "a row, as Basket makes it": lambda file: images.decode(
            [file], _CONFIG, _SPEC, "picture"
        ),
        "Pillow, whole": lambda file: _small(Image.open(io.BytesIO(file))),
        "Pillow, shrunk while it is decoded": _shrunk,
        "simplejpeg": lambda file: _small(_image(simplejpeg.decode_jpeg(file))),
        "OpenCV": lambda file: _small(
            _image(cv2.imdecode(np.frombuffer(file, np.uint8), cv2.IMREAD_COLOR_RGB))
        ),
    }


def _small(image: Image.Image) -> Image.Image:
    return image.resize((96, 96), Image.Resampling.NEAREST)


def _image(pixels: npt.NDArray[np.uint8]) -> Image.Image:
    return Image.fromarray(pixels)


def _shrunk(file: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(file))
    image.draft(None, (4 * 96, 4 * 96))
    return _small(image)


def _largest_change(file: bytes) -> int:
    whole = np.asarray(_small(Image.open(io.BytesIO(file))), np.int16)
    return int(np.abs(whole - np.asarray(_shrunk(file))).max())


def _best_ms(decode: _Decode, file: bytes) -> float:
    best_s = float("inf")
    for _ in range(_ROUNDS):
        runs, began_at = 0, time.perf_counter()
        while (took_s := time.perf_counter() - began_at) < _ROUND_S or not runs:
            decode(file)
            runs += 1
        best_s = min(best_s, took_s / runs)
    return best_s * 1000


if __name__ == "__main__":
    sys.exit(main())
