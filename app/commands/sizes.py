"""How large models are."""

from pathlib import Path
from typing import Protocol, runtime_checkable

from app.engines.base import Engine


@runtime_checkable
class _Weighs(Protocol):
    """An engine that knows the bytes of its model's weights."""

    weight_bytes: int


def weight_bytes(engine: Engine) -> int:
    """Bytes of the model's weights; 0: not known, or none."""
    return engine.weight_bytes if isinstance(engine, _Weighs) else 0


def file_bytes(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def bytes_text(size: float) -> str:
    """A size as people read it: 150.9 KiB."""
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:  # noqa: PLR2004
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} GiB"
