"""Small damage to values and bytes: almost valid input gets deepest into a parser."""

import copy
import json
import random
from collections.abc import Iterator
from itertools import islice
from typing import Any

# Stands for nesting as deep as parsers accept, which json.dumps cannot write.
_DEEP = "<deep>"
_DEPTHS = (100, 500, 990, 1020)
_TEXTS = ("", "x", "NaN", "\x00", "\ud800", "ü€𝄞", "9" * 400, "../../etc/passwd")
_NUMBERS = (0, -1, 1.5, 1e308, -1e-320, 2**31, 2**63, 2**64, 10**400)
_JUNK: tuple[Any, ...] = (
    *(_DEEP, _DEEP, None, True, False, "a" * 5000, *_TEXTS, *_NUMBERS),
    *(float("nan"), float("inf"), float("-inf")),
    *([], [[]], [[[[[]]]]], [1, [2]], {}, {"b64": "%%"}, {"b64": "/wA="}, {"": {}}),
)
_TOKENS = (
    *(b"\x00", b"\xff\xfe", b"\r\n", b"\n", b"\r\n\r\n", b"%00", b"\x93NUMPY"),
    *(b'NaN Infinity - e " \\u \\ud800 { } [ ] , : -- % \x89PNG'.split()),
    *(b"[" * 3000, b'{"a":' * 1500, b"9" * 5000, b"A" * 3000),
)


def damaged(value: Any, rng: random.Random) -> Any:
    """Return a JSON value with one to three places changed, dropped or added."""
    whole = [copy.deepcopy(value)]
    for _ in range(rng.randint(1, 3)):
        holder, key = rng.choice(list(islice(_places(whole), 300)))
        _damage(holder, key, rng)
    return whole[0] if whole else None


def dumped(value: Any, rng: random.Random) -> bytes:
    """Return a value as JSON."""
    depth = rng.choice(_DEPTHS)
    opening, closing = rng.choice((("[", "]"), ('{"a":', "}")))
    deep = opening * depth + "1" + closing * depth
    return json.dumps(value).replace(json.dumps(_DEEP), deep).encode()


def damaged_bytes(data: bytes, rng: random.Random) -> bytes:
    """Return the bytes with one to four edits."""
    edited = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randint(0, len(edited))
        size = rng.choice((1, 1, 2, 4, 16, 64))
        edit = rng.randrange(6)
        if edit == 0:
            edited[at : at + size] = rng.randbytes(size)
        elif edit == 1:
            del edited[at : at + size]
        elif edit == 2:
            edited[at:at] = edited[at : at + size] * rng.randint(1, 20)
        elif edit == 3:
            edited[at:at] = rng.choice(_TOKENS)
        elif edit == 4 and edited:
            edited[at % len(edited)] ^= 1 << rng.randrange(8)
        else:
            del edited[at:]
    return bytes(edited)


def junk(rng: random.Random) -> Any:
    """Return a value that no field takes."""
    return copy.deepcopy(rng.choice(_JUNK))


def _places(holder: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the places in a value of lists and objects."""
    for key in holder if isinstance(holder, dict) else range(len(holder)):
        yield holder, key
        if isinstance(holder[key], list | dict):
            yield from _places(holder[key])


def _damage(holder: Any, key: Any, rng: random.Random) -> None:
    edit = rng.randrange(5)
    if edit == 0 and isinstance(holder, dict):
        holder[rng.choice(("", "x", str(key).upper(), "b64", "\x00"))] = holder.pop(key)
    elif edit == 1:
        holder[key] = [holder[key]]
    elif edit == 2 and isinstance(holder, list):
        holder.extend(copy.deepcopy(holder[key]) for _ in range(rng.choice((1, 2, 50))))
    elif edit == 3 and len(holder) > 1:
        del holder[key]
    else:
        holder[key] = junk(rng)
