"""Sizes of models in bytes."""

from pathlib import Path

from app.engines.base import Engine


def weight_bytes(engine: Engine) -> int:
    """Return the bytes of the model's weights; 0 if unknown or none."""
    return int(getattr(engine, "weight_bytes", 0))


def file_bytes(folder: Path) -> int:
    """Return the bytes of all files below a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def bytes_text(size: float) -> str:
    """Return a size for display: 150.9 KiB."""
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:  # noqa: PLR2004
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} GiB"
