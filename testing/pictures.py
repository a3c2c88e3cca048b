"""Pictures for tests, made on the spot."""

import io
from typing import Any

import numpy as np
from PIL import Image


def colours(width: int = 37, height: int = 23, seed: int = 0) -> np.ndarray:
    """Pixels (height, width, 3): waves that the seed chooses, with a little noise."""
    random = np.random.default_rng(seed)
    across, down = np.meshgrid(np.linspace(0, 1, width), np.linspace(0, 1, height))
    waves = [
        np.sin(2 * np.pi * (x * across + y * down + begin))
        for x, y, begin in random.uniform(0.2, 2, (3, 3))
    ]
    noise = random.normal(0, 4, (height, width, 3))
    return np.clip(np.stack(waves, -1) * 115 + 127 + noise, 0, 255).astype(np.uint8)


def picture(
    mode: str = "RGB", width: int = 37, height: int = 23, seed: int = 0
) -> Image.Image:
    """A picture of the colours above in any mode; alpha fades from left to right."""
    image = Image.fromarray(colours(width, height, seed))
    if mode in ("RGBA", "LA", "PA"):
        fade = np.linspace(0, 255, width).astype(np.uint8)
        image.putalpha(Image.fromarray(np.tile(fade, (height, 1))))
    return image.quantize(32) if mode == "P" else image.convert(mode)


def saved(image: Image.Image | np.ndarray, kind: str = "PNG", **options: Any) -> bytes:
    """The bytes of a file of that kind."""
    if isinstance(image, np.ndarray):
        image = Image.fromarray(image)
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def form(
    *files: bytes, field: str = "file", boundary: str = "edge", end: str = "\r\n"
) -> tuple[bytes, dict[str, str]]:
    """A form's body and headers, its parts without a Content-Type.

    With an empty `end` it is as terse as wrk scripts write it.
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
