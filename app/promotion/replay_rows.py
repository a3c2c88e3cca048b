"""The rows on which two versions are compared: captured ones, EXAMPLE, or random."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from app.engines.base import DEFAULT_SIGNATURE, Tensors
from app.engines.batch_sizes import batch_sizes
from app.engines.random_rows import random_rows_for
from app.errors import ModelLoadError
from app.promotion.measures.captured_rows import captured_rows
from app.promotion.side import RowGroup, Side
from app.settings import Settings
from app.settings.promotion_config import PromotionConfig


@dataclass(frozen=True)
class ReplayRows:
    """Rows of all signatures, numbered through from 0.

    `described` says which they are, such as "200 captured rows"; `notes` what was left
    out. `batch_sizes` are those that the server runs, increasing. `largest_batch` is
    that of the captured requests, else the server's.
    """

    groups: Sequence[RowGroup]
    described: str
    notes: Sequence[str]
    batch_sizes: Sequence[int]
    largest_batch: int

    def __len__(self) -> int:
        """Return the number of rows."""
        return sum(map(len, self.groups))


def replay_rows(
    serving: Side,
    config: PromotionConfig,
    settings: Settings,
    captured: Path | None,
) -> ReplayRows:
    """Return rows that the serving version takes, at most `config.replay`.

    `captured` is the model's folder of captured requests, if there may be one. Without
    captured rows it is EXAMPLE of service.py, and without one random rows.

    Raises:
        Exception: what the serving version's `run` raises besides a model's errors.
    """
    sizes = batch_sizes(settings.max_batch_size, settings.allowed_batch_sizes)
    found = _captured(serving, config.replay, sizes, captured)
    if not found.groups:
        notes = found.notes
        found = _example(serving, sizes) or _random(serving, config.replay, sizes)
        found = replace(found, notes=[*notes, *found.notes])
    return found


def _captured(
    serving: Side, count: int, sizes: Sequence[int], folder: Path | None
) -> ReplayRows:
    if folder is None:
        return ReplayRows((), "no rows", (), sizes, sizes[-1])
    groups, notes, largest = captured_rows(folder, serving, count)
    largest = min(max(largest, 1), sizes[-1])
    found = ReplayRows(groups, "", notes, sizes, largest)
    return replace(found, described=_rows_text(len(found), "captured row"))


def _rows_text(count: int, kind: str) -> str:
    return f"{count} {kind}{'' if count == 1 else 's'}"


def _example(serving: Side, sizes: Sequence[int]) -> ReplayRows | None:
    code = serving.user_code
    if code is None or not code.service.has_example:
        return None
    group = RowGroup(DEFAULT_SIGNATURE, {}, [code.service.example])
    return ReplayRows([group], "EXAMPLE of service.py", (), sizes, sizes[-1])


def _random(serving: Side, count: int, sizes: Sequence[int]) -> ReplayRows:
    """Return random rows, as many of each signature that takes some."""
    none = ReplayRows((), "no rows", (), sizes, sizes[-1])
    if serving.takes_objects():
        return replace(none, notes=["service.py has no EXAMPLE"])
    groups, notes, described = [], [], ""
    each = max(count // len(serving.signatures), 1)
    for name, signature in serving.signatures.items():
        try:
            kind = random_rows_for(signature, partial(_run, serving, name))
        except ModelLoadError as error:
            notes.append(f"{name}: {error}")
            continue
        described = described or kind.describe()
        groups.append(RowGroup(name, kind.make(each, np.random.default_rng(0))))
    if not groups:
        return replace(none, notes=notes)
    rows = sum(map(len, groups))
    text = f"{_rows_text(rows, 'random row')}{described}"
    return ReplayRows(groups, text, notes, sizes, sizes[-1])


def _run(side: Side, name: str, batch: Tensors) -> Tensors:
    return side.run(batch, name)
