"""Blocks: captured requests as .npz, which NumPy reads without Basket.

The members of the first group are `signature`, `form`, the COLUMNS, and
`inputs/NAME` and `outputs/NAME` with the rows of all requests. Those of the second
group begin with `1/`, and so on. NumPy would have to pickle strings: a tensor of
strings is `NAME.lengths`, of the tensor's shape, and `NAME.bytes`, the strings one
after the other.
"""

import io
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from app.capture.captured import COLUMNS, Group
from app.engines.base import Array, Tensors

_FORMAT, _VERSION = "basket_capture", 1
_LENGTHS, _BYTES = ".lengths", ".bytes"


class UnreadableBlock(Exception):
    """A file is no block, or is damaged; the text says why."""


def encode(groups: Sequence[Group]) -> bytes:
    """Return the content of a block."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in _members(groups):
            with archive.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
    return buffer.getvalue()


def read(file: Path) -> list[Group]:
    """Return the groups in a block, or in an exported file.

    Raises:
        UnreadableBlock: it is another file, or damaged.
    """
    if not file.is_file():
        raise UnreadableBlock("it is no file")
    try:
        # NumPy leaves a damaged file open that it has opened itself.
        with (
            file.open("rb") as content,
            np.load(content, allow_pickle=False) as members,
        ):
            return _groups({name: members[name] for name in members.files})
    except UnreadableBlock:
        raise
    except Exception as error:  # a damaged file may raise anything
        reason = str(error) or type(error).__name__
        raise UnreadableBlock(f"it can't be read: {reason[:200]}") from error


def _members(groups: Sequence[Group]) -> Iterator[tuple[str, Array]]:
    yield _FORMAT, np.array(_VERSION)
    for number, group in enumerate(groups):
        prefix = _prefix(number)
        yield f"{prefix}signature", np.array(group.signature_name)
        yield f"{prefix}form", np.array(group.form)
        for name, column in group.columns.items():
            yield prefix + name, column
        for kind in ("inputs", "outputs"):
            for name, array in getattr(group, kind).items():
                yield from _tensor(f"{prefix}{kind}/{name}", array)


def _tensor(name: str, array: Array) -> Iterator[tuple[str, Array]]:
    if array.dtype.kind != "O":
        yield name, np.ascontiguousarray(array).reshape(array.shape)
        return
    strings = array.ravel().tolist()
    lengths = np.array([len(each) for each in strings], np.int64)
    yield name + _LENGTHS, lengths.reshape(array.shape)
    yield name + _BYTES, np.frombuffer(b"".join(strings), np.uint8)


def _groups(members: Mapping[str, Array]) -> list[Group]:
    if members.get(_FORMAT) != _VERSION:
        raise UnreadableBlock("it has no captured requests")
    groups: list[Group] = []
    while f"{_prefix(len(groups))}signature" in members:
        groups.append(_group(members, _prefix(len(groups))))
    return groups


def _group(members: Mapping[str, Array], prefix: str) -> Group:
    group = Group(
        str(members[f"{prefix}signature"]),
        str(members[f"{prefix}form"]),
        {name: members[prefix + name] for name in COLUMNS},
        _tensors(members, f"{prefix}inputs/"),
        _tensors(members, f"{prefix}outputs/"),
    )
    rows = int(group.columns["rows"].sum())
    tensors = [*group.inputs.values(), *group.outputs.values()]
    if (
        not group.inputs
        or any(len(each) != rows for each in tensors)
        or any(len(each) != len(group) for each in group.columns.values())
    ):
        raise UnreadableBlock("its columns do not fit together")
    return group


def _tensors(members: Mapping[str, Array], prefix: str) -> Tensors:
    found: dict[str, Array] = {}
    for name, array in members.items():
        if not name.startswith(prefix) or name.endswith(_BYTES):
            continue
        tensor = name.removeprefix(prefix)
        if not name.endswith(_LENGTHS):
            found[tensor] = array
            continue
        tensor = tensor.removesuffix(_LENGTHS)
        found[tensor] = _strings(array, members[f"{prefix}{tensor}{_BYTES}"])
    return found


def _strings(lengths: Array, data: Array) -> Array:
    content, ends = data.tobytes(), np.cumsum(lengths)
    strings = [
        content[end - length : end]
        for end, length in zip(ends.tolist(), lengths.ravel().tolist(), strict=True)
    ]
    return np.array(strings, object).reshape(lengths.shape)


def _prefix(number: int) -> str:
    return f"{number}/" if number else ""
