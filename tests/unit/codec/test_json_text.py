"""JSON with NaN and Infinity, both ways."""

import math
import time

import numpy as np
import pytest

from app.codec import json_text
from app.errors import BadInput

DEEP = 100_000


@pytest.mark.parametrize(
    ("body", "value"),
    [
        pytest.param(b' {"a": [1, 2.5, "x"]} ', {"a": [1, 2.5, "x"]}, id="plain"),
        pytest.param(b"[Infinity, -Infinity]", [math.inf, -math.inf], id="infinity"),
        pytest.param(b"[Inf, -Inf]", [math.inf, -math.inf], id="short infinity"),
        pytest.param(b'["NaN", true]', ["NaN", True], id="NaN in a string"),
        pytest.param(
            b'["Inf", "\\"Inf", Inf, "a\\\\", Inf]',
            ["Inf", '"Inf', math.inf, "a\\", math.inf],
            id="Inf in and beside strings",
        ),
        pytest.param(b'[1] "Inf', [1], id="an open string behind"),
        pytest.param(b"[1] [2]", [1], id="two documents"),
        pytest.param(b"\r\n\t {}}", {}, id="a brace behind"),
        pytest.param(b"\xef\xbb\xbf[1]", [1], id="byte order mark"),
        pytest.param(b'["\\ud83d\\ude00", 1]', ["\U0001f600", 1], id="a whole pair"),
        pytest.param(
            b'["\\ud83d\\ude00", Infinity]',
            ["\U0001f600", math.inf],
            id="a whole pair beside Infinity",
        ),
        pytest.param(b"[%s]" % (b"1" * 300), [float("1" * 300)], id="300 digits"),
        pytest.param(
            b"[%s, Infinity]" % (b"1" * 309),
            [int("1" * 309), math.inf],
            id="309 digits beside Infinity",
        ),
    ],
)
def test_loads_json_with_nan_and_infinity(body, value):
    """JSON is read as Python reads it, with and without NaN or Infinity."""
    assert json_text.loads(body, ignore_tail=True) == value
    assert math.isnan(json_text.loads(b"[NaN]")[0])


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        pytest.param(b"", "The document is empty", id="empty"),
        pytest.param(b" \r\n\t", "The document is empty", id="blank"),
        pytest.param(b"{", "at offset: 1", id="cut off"),
        pytest.param(b"[1,\n2,]", "at offset: ", id="trailing comma"),
        pytest.param(b"[nan]", "at offset: 1", id="lower case nan"),
        pytest.param(b"[NaN, nan]", "at offset: 6", id="lower case nan beside NaN"),
        pytest.param(b"[Infi]", "at offset: 1", id="half of Infinity"),
        pytest.param(b"[xInf]", "at offset: 1", id="Inf within a word"),
        pytest.param(b"[1e400]", "infinity when parsed", id="beyond double"),
        pytest.param(b"[1e400, NaN]", "the number 1e400", id="beyond double, NaN"),
        pytest.param(b"[%s]" % (b"9" * 309), "infinity when", id="309 nines"),
        pytest.param(b"[%s, NaN]" % (b"9" * 309), "infinity when", id="309 nines, NaN"),
        pytest.param(b"[%s, NaN]" % (b"9" * 9999), "infinity when", id="9999 digits"),
        pytest.param(b"\xff\xfe[", "can't decode byte 0xff", id="not UTF-8"),
        pytest.param(b'["\xff", NaN]', "can't decode byte 0xff", id="not UTF-8, NaN"),
        pytest.param(b'["\\ud800"]', "surrogates", id="half a pair"),
        pytest.param(b'["\\ud800", NaN]', "surrogates", id="half a pair, NaN"),
        pytest.param(b"[" * DEEP, "depth", id="deep and open"),
        pytest.param(b"[" * DEEP + b"]" * DEEP, "depth", id="deep"),
        pytest.param(b"[NaN," * DEEP + b"]" * DEEP, "depth", id="deep, with NaN"),
        pytest.param(b'{"NaN":' * DEEP, "depth", id="deep objects, with NaN"),
    ],
)
def test_malformed_json_is_refused(body, problem):
    """The refusal is short, and says what is wrong and where."""
    with pytest.raises(BadInput, match=r"^JSON Parse error: ") as raised:
        json_text.loads(body)
    assert problem in str(raised.value)
    assert len(str(raised.value).encode()) < 200


@pytest.mark.parametrize("tail", [b"x", b" }", b"\n[2]", b"\0"])
@pytest.mark.parametrize("value", [b"[1]", b"[NaN]"])
def test_text_behind_the_value_is_refused(value, tail):
    """Only TensorFlow Serving's protocol ignores it; blanks are no text."""
    assert json_text.loads(value + b" \r\n\t") is not None
    with pytest.raises(BadInput, match="text follows the value at offset: "):
        json_text.loads(value + tail)
    assert json_text.loads(value + tail, ignore_tail=True) is not None


def test_search_for_infinity_is_linear():
    """A body of unclosed strings with escaped quotes is refused within a second."""
    body = b'[Inf, "' + b'\\"' * 300_000
    began_at = time.thread_time()
    with pytest.raises(BadInput, match="Unterminated string"):
        json_text.loads(body)
    assert time.thread_time() - began_at < 1


@pytest.mark.parametrize("write", [json_text.dumps, json_text.dumps_any_float])
@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param(np.array([0.2], "f4"), b"[0.2]", id="float32"),
        pytest.param(np.array([0.2], "f8"), b"[0.2]", id="float64"),
        pytest.param(np.array([[1], [2]], "i8"), b"[[1],[2]]", id="int64"),
        pytest.param(np.array([2**64 - 1], "u8"), b"[%d]" % (2**64 - 1), id="uint64"),
        pytest.param(np.array([True, False]), b"[true,false]", id="bool"),
        pytest.param(np.zeros((2, 0), "f4"), b"[[],[]]", id="no values"),
        pytest.param({"a": np.float32(0.1)}, b'{"a":0.1}', id="a NumPy scalar"),
        pytest.param({"a": [None, "ü"]}, None, id="no array"),
    ],
)
def test_dumps_finite_values(write, value, text):
    """Both functions write the same JSON for finite values."""
    assert json_text.loads(write(value)) == json_text.loads(json_text.dumps(value))
    assert text is None or write(value) == text


def test_dumps_nan_and_infinity():
    """NaN and infinities are bare tokens, other values have the fewest digits."""
    array = np.array([0.2, np.nan, np.inf, -np.inf, -0.0], "f4")
    text = b"[0.2,NaN,Infinity,-Infinity,-0.0]"
    assert json_text.dumps_any_float(array) == text
    scalars = {"a": array[1], "null": ["null", None, array[2:3]]}
    text = b'{"a":NaN,"null":["null",null,[Infinity]]}'
    assert json_text.dumps_any_float(scalars) == text


def test_float16_is_written_in_the_fewest_digits():
    """Each float16 is written as NumPy writes it."""
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    wide = json_text.shortest_floats(halves)
    np.testing.assert_array_equal(wide.astype(np.float16), halves)
    assert list(map(float, map(str, halves[:1000]))) == wide[:1000].tolist()
    assert json_text.dumps(json_text.shortest_floats(halves[0x2E66])) == b"0.1"
    assert np.signbit(wide[1 << 15])
