"""Rows of captured requests: the newest, and others spread over time."""

import itertools
import math
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from app.capture.captured import JSON, WHOLE, Group
from app.capture.reader import read_captured
from app.capture.ring import BLOCK_NAME
from app.codec import json_text
from app.engines.base import DEFAULT_SIGNATURE
from app.promotion.measures.answers import all_fit
from app.promotion.side import RowGroup, Side

# What is read of a folder: its blocks may be far more than a server's memory.
_MAX_FILES, _MAX_BYTES = 256, 128 << 20
_MAX_NOTES = 10
_T = TypeVar("_T")


class CapturedRows(NamedTuple):
    """Rows by signature and shape, notes on what is left out, the largest batch."""

    groups: Sequence[RowGroup]
    notes: Sequence[str]
    largest_batch: int


class _Request(NamedTuple):
    """A request's place: its block, its group and number there, and its rows."""

    block: str
    group: Group
    number: int
    rows: slice


def captured_rows(folder: Path, side: Side, count: int) -> CapturedRows:
    """Return at most `count` captured rows that a version takes.

    Half of them are of the newest requests, the others of requests spread over the
    time before. Each request gives one row before any gives a second one. Damaged and
    foreign files are left out.
    """
    requests: list[_Request] = []
    notes: list[str] = []
    for file in _chosen_files(folder):
        try:
            found = list(_requests(file.name, read_captured(file).groups, side))
        except FileNotFoundError:  # it made room for newer ones
            continue
        except Exception as error:  # a damaged file may raise anything
            notes.append(f"{file.name} is skipped: {str(error)[:200]}")
            continue
        requests += found
    if len(notes) > _MAX_NOTES:
        notes[_MAX_NOTES:] = [f"{len(notes) - _MAX_NOTES} more files are skipped"]
    # Blocks count up, and their requests are in order; clocks may be set back.
    requests.sort(key=lambda each: (each.block, each.number), reverse=True)
    chosen = _spread(requests, count)
    largest = max(
        (each.group.columns["batch_rows"][each.number] for each in requests), default=0
    )
    return CapturedRows(_grouped(_rows(chosen, count)), notes, int(largest))


def _chosen_files(folder: Path) -> Iterator[Path]:
    """Yield blocks, newest first: half of them the newest, the others spread."""
    try:
        names = sorted(
            (each.name for each in folder.iterdir() if BLOCK_NAME(each.name)),
            reverse=True,
        )
    except OSError:
        return
    room = _MAX_BYTES
    for name in _spread(names, _MAX_FILES):
        file = folder / name
        size = _unpacked_bytes(file)
        if size <= room:
            room -= size
            yield file


def _unpacked_bytes(file: Path) -> int:
    """Return the bytes of a block's members; 0: it is no block, reading will tell."""
    try:
        with zipfile.ZipFile(file) as members:
            return sum(each.file_size for each in members.infolist())
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError):
        return 0


def _requests(block: str, groups: Sequence[Group], side: Side) -> Iterator[_Request]:
    """Yield the requests of a block whose rows a version takes."""
    for group in groups:
        if _is_taken(group, side):
            if group.form == JSON:
                for text in group.inputs["json"].tolist():
                    json_text.loads(text)
            for number, place in enumerate(group.slices()):
                yield _Request(block, group, number, place)


def _is_taken(group: Group, side: Side) -> bool:
    if (group.form == JSON) != side.takes_objects():
        return False
    if group.form == JSON:
        return group.signature_name == DEFAULT_SIGNATURE and "json" in group.inputs
    signature = side.signatures.get(group.signature_name)
    if signature is None or (group.form == WHOLE) != signature.takes_whole_tensors:
        return False
    return all_fit(group.inputs, signature)


def _spread(newest_first: Sequence[_T], count: int) -> Sequence[_T]:
    """Return so many: the newest, and as many spread over the others."""
    if len(newest_first) <= count:
        return newest_first
    newest = math.ceil(count / 2)
    older = newest_first[newest:]
    places = np.linspace(0, len(older) - 1, count - newest).round().astype(int)
    return [*newest_first[:newest], *(older[place] for place in places.tolist())]


def _rows(requests: Sequence[_Request], count: int) -> Iterator[tuple[_Request, int]]:
    """Yield so many rows: the first of each request, then the second, and so on."""
    deepest = max((each.rows.stop - each.rows.start for each in requests), default=0)
    everything = (
        (each, each.rows.start + depth)
        for depth in range(deepest)
        for each in requests
        if each.rows.start + depth < each.rows.stop
    )
    return itertools.islice(everything, count)


def _grouped(rows: Iterator[tuple[_Request, int]]) -> list[RowGroup]:
    """Return rows by signature and shape."""
    kinds: dict[object, list[tuple[_Request, int]]] = {}
    for request, row in rows:
        shapes = tuple(
            (name, array.dtype, array.shape[1:])
            for name, array in sorted(request.group.inputs.items())
        )
        key = (request.group.signature_name, request.group.form, shapes)
        kinds.setdefault(key, []).append((request, row))
    return [_group(each) for each in kinds.values()]


def _group(rows: Sequence[tuple[_Request, int]]) -> RowGroup:
    first = rows[0][0].group
    ids = [
        request.group.columns["request_id"][request.number].decode(errors="replace")
        for request, _ in rows
    ]
    places = [(request.group.inputs, row) for request, row in rows]
    if first.form == JSON:
        texts = [inputs["json"][row] for inputs, row in places]
        return RowGroup(first.signature_name, {}, [*map(json_text.loads, texts)], ids)
    inputs = {
        name: np.concatenate([inputs[name][row : row + 1] for inputs, row in places])
        for name in first.inputs
    }
    return RowGroup(first.signature_name, inputs, request_ids=ids)
