"""JSON of what service.py gives."""

import dataclasses
import datetime
import decimal
import enum
import json
from collections import OrderedDict, namedtuple
from types import MappingProxyType

import numpy as np
import pytest

from app.codec import json_objects

Point = namedtuple("Point", "x y")
BIG = 2**70


class Color(enum.Enum):
    RED = np.int64(1)


class Half(float):
    """A subclass of a plain type."""


@dataclasses.dataclass
class Box:
    """A record with an array in it."""

    corners: np.ndarray


def nested(depth):
    value = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        # Keys.
        ({np.str_("a"): 1}, '{"a":1}'),
        ({np.int64(1): 1, np.uint8(2): 2}, '{"1":1,"2":2}'),
        ({np.float64(0.5): 1, np.bool_(True): 2}, '{"0.5":1,"true":2}'),
        ({b"a": 1, None: 2, BIG: 3}, f'{{"a":1,"null":2,"{BIG}":3}}'),
        ({Color.RED: {np.str_("b"): np.int8(2)}}, '{"1":{"b":2}}'),
        (MappingProxyType({1: 2}), '{"1":2}'),
        (OrderedDict(a=1), '{"a":1}'),
        # Scalars.
        ([np.str_("ż"), np.bytes_(b"a"), np.bool_(False)], '["ż","a",false]'),
        ([np.float32(0.1), np.longdouble(0.5), Half(0.5)], "[0.1,0.5,0.5]"),
        ([np.uint64(2**64 - 1), np.int64(-(2**63))], f"[{2**64 - 1},{-(2**63)}]"),
        ([BIG, -BIG, (BIG,)], f"[{BIG},{-BIG},[{BIG}]]"),
        ([float("nan"), np.float32("inf"), np.datetime64("NaT")], "[null,null,null]"),
        (Color.RED, "1"),
        ([b"a", bytearray(b"b"), memoryview(b"c")], '["a","b","c"]'),
        # Arrays.
        (np.arange(3, dtype=">i8"), "[0,1,2]"),
        ({"a": np.array([[0.1], [2]], ">f4")}, '{"a":[[0.1],[2.0]]}'),
        (np.array(7, ">i2"), "7"),
        (np.array([0.1, 0, 0.2], "f4")[::2], "[0.1,0.2]"),
        (np.array([0.5], np.longdouble), "[0.5]"),
        (np.ma.array([1, 2], mask=[False, True]), "[1,null]"),
        (np.array([(1, b"a")], "i4,S1"), '[[1,"a"]]'),
        (np.array([BIG, np.float32(0.5), None], object), f"[{BIG},0.5,null]"),
        (np.array(["a", "b"]), '["a","b"]'),
        (np.zeros((2, 0), ">f8"), "[[],[]]"),
        # Others.
        (((1, (2, ())), Point(3, [4])), "[[1,[2,[]]],[3,[4]]]"),
        (Box(np.arange(2, dtype=">i4")), '{"corners":[0,1]}'),
        (datetime.datetime(2026, 1, 2, 3), '"2026-01-02T03:00:00"'),
        ([datetime.date(2026, 1, 2), BIG], f'["2026-01-02",{BIG}]'),
        (
            [np.array(["2026-01-02T03:00:00"], "M8[ns]"), BIG],
            f'[["2026-01-02T03:00:00"],{BIG}]',
        ),
        (nested(240), "[" * 240 + "1" + "]" * 240),
    ],
)
def test_value_is_written(value, text):
    """NumPy's values are numbers, text and lists, in the digits that they need."""
    assert json_objects.dumps(value).decode() == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": [1, {2, 3}]}, "value['a'][1] is of type set: it has no order: give a"),
        ([decimal.Decimal(1)], "value[0] is of type Decimal: give its float or str"),
        (datetime.timedelta(1), "value is of type timedelta: give its total_seconds()"),
        (np.timedelta64(1, "ns"), "value is of type timedelta: give its total_sec"),
        (np.array([1j]), "value[0] is of type complex: give a list of its real and"),
        (np.clongdouble(1j), "value is of type clongdouble: give a number, text"),
        (range(3), "value is of type range: give a number, text, bytes, an array, a"),
        (object(), "value is of type object: give a number, text, bytes, an array"),
        ([10**5000], "value[0] is of type int: it has more than 4300 digits"),
        ("\ud800", "value is of type str: it has half a surrogate pair"),
        ({(1, 2): 3}, "value has the key (1, 2) of type tuple: give text or a number"),
        ([{10**5000: 3}], "value[0] has the key (int) of type int: give text or a"),
        (
            {"a": {1: 2, "1": 3}},
            "value['a'] has two keys that JSON writes as '1': give",
        ),
        ([{b"\xff": 3}], "value[0] has the key b'\\xff' of type bytes: give text or"),
        (Box({1}), "value.corners is of type set: it has no order"),
        (nested(300), "value[0][0][0][0][0][0][0][0][0][0][0][0... is nested more"),
        ({"k" * 99: {1}}, f"value['{'k' * 39}] is of type set"),
    ],
)
def test_value_that_json_cannot_hold_is_named(value, text):
    """The error has the place, the type, and what to give instead."""
    with pytest.raises(TypeError) as raised:
        json_objects.dumps(value)
    assert str(raised.value).startswith(text)
    assert len(str(raised.value)) < 400


def test_value_that_contains_itself_is_refused():
    """It ends, and says so."""
    loop = {}
    loop["again"] = [loop]
    with pytest.raises(TypeError, match="or in itself"):
        json_objects.dumps(loop)


def test_value_with_odd_parts_is_the_same_as_without():
    """What one odd part makes slower is written alike."""
    plain = {"a": [1, 0.5, None, True, "ż"], "b": np.eye(2), "c": {"d": (1, 2)}}
    both = json.loads(json_objects.dumps([plain, BIG]))
    assert both == [json.loads(json_objects.dumps(plain)), BIG]
