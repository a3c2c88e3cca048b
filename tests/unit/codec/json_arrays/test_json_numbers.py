"""Arrays of numbers in JSON text: read as orjson and nested lists are, or refused."""

import json

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.codec import json_text, nested
from app.codec.bounds import Bounds
from app.codec.json_arrays import numbers, pieces
from app.codec.json_arrays.split import Numbers
from app.engines.base import TensorSpec
from app.errors import BadInput, Late, TooLarge
from testing.clients import in_parallel

PLAIN = "[[1, 2.5], [-3e2, 0.1]]"
TOKENS = [
    *("0", "-0", "-0.0", "0e9", "7", "-1.5", "1E5", "1.0e+5", "0.1", "16777217"),
    *("9007199254740993", "9223372036854775807", "9223372036854775808"),
    *("-9223372036854775808", "-9223372036854775809", "18446744073709551615"),
    *("18446744073709551616", "1" * 400, "1e400", "1e-400", "65519", "65520", "1e39"),
    *("3.4028235677973366e38", "3.4028235677973362e38", "1.0000000596046448", "5e-324"),
    *(
        "1e-45",
        "7.0064923216240854e-46",
        "2.9802322387695312e-08",
        "2.98023223876954e-8",
    ),
    *("NaN", "Infinity", "-Inf", "true", "null", '"1"', "{}", "[]", "[1]", "[1, 2]"),
    *("01", "1.", "+1", ".5", "- 1", "1 2", "", "\t3\n", "\u00a01", "\\u0031"),
]
SPECS = [
    TensorSpec("x", np.dtype(dtype), shape)
    for dtype in ("f2", "f4", "f8", "i1", "i8", "u1", "u8", "?")
    for shape in ((), (1,), (2,), (None,), (2, 1), (None, 2), (None, None))
]
token = st.sampled_from(TOKENS) | st.floats().map(repr) | st.integers().map(str)
number = st.floats(allow_nan=False, allow_infinity=False, width=32).map(repr)
integer = st.integers(0, 127).map(str)


def json_problem(text):
    """Return the refusal with json's own words: Python 3.13 has others than 3.11."""
    with pytest.raises(json.JSONDecodeError) as raised:
        json.loads(text)
    return f"JSON Parse error: {raised.value.msg} at offset: {raised.value.pos + 1}"


def listed(inner, **sizes):
    return st.lists(inner, **{"max_size": 3, **sizes}).map(
        lambda items: f"[{', '.join(items)}]"
    )


nest = st.recursive(token, listed, max_leaves=6)
even = st.one_of(
    listed(listed(leaf, min_size=2, max_size=2), max_size=9)
    for leaf in (number, integer, token)
)
even_pairs = listed(listed(listed(integer, min_size=2, max_size=2), max_size=2))


@pytest.fixture(params=[8, 1 << 16])
def piece_bytes(request, monkeypatch):
    """Read the text in small pieces, and at once."""
    monkeypatch.setattr(pieces, "_USUAL_BYTES", request.param)
    return request.param


def listed_text(items):
    return f"[{','.join(items)}]"


def numbers_in(text):
    """Return the array that a text is, which begins behind another byte."""
    body = b"x" + text.encode()
    return Numbers(body, 1, len(body))


def read(text, spec, **bounds):
    return numbers.read(numbers_in(text), spec, "rows", "", Bounds(**bounds))


def by_objects(text, spec):
    """Return the rows as they are read from Python objects; None: they are refused."""
    try:
        values = json_text.loads(text.encode())
        return nested.read(values, spec, "rows", "", has_bools=True)
    except BadInput:
        return None


@given(
    listed(nest) | even | even_pairs,
    st.sampled_from(SPECS),
    st.sampled_from([4, 16, 1 << 16]),
)
@example("[[1], [2, 3]]", SPECS[3], 1 << 16)
@example("[[[], [1, 2]]]", SPECS[5], 1 << 16)
@example("[[[1], 2]]", SPECS[2], 1 << 16)
@example("[1[,2],[3,4]]", SPECS[2], 4)
@example("[[1,2]3,[4]]", SPECS[2], 4)
@example("[[1,2],[3,4],]", SPECS[2], 4)
@example("[-NaN, 1NaN]", SPECS[0], 4)
def test_text_and_objects_agree(text, spec, size):
    """The text gives the same values to the last bit, or is refused as objects are."""
    if not any(digit in text for digit in "0123456789NItf"):
        return  # Lists without a value are never left as text.
    wanted = by_objects(text, spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "_USUAL_BYTES", size)
        if wanted is None:
            with pytest.raises(BadInput):
                read(text, spec)
            return
        array = read(text, spec)
    assert (array.dtype, array.shape) == (wanted.dtype, wanted.shape)
    assert array.tobytes() == wanted.tobytes()


@pytest.mark.usefixtures("piece_bytes")
@pytest.mark.parametrize(
    ("text", "dtype", "shape", "values"),
    [
        (PLAIN, "f4", (2,), [[1, 2.5], [-3e2, 0.1]]),
        (PLAIN, "f2", (None,), [[1, 2.5], [-3e2, 0.1]]),
        ("[[-0.0], [5]]", "f8", (1,), [[-0.0], [5]]),
        ("[1, 2, 3]", "f4", (), [1, 2, 3]),
        ("[[[1], [2]]]", "f4", (2, None), [[[1], [2]]]),
        (" [ [ 7 ] ,\n[8]\t]"[1:], "u1", (1,), [[7], [8]]),
        ("[true, false, true]", "?", (), [True, False, True]),
        ("[[true, false], [false, true]]", "?", (None,), [[1, 0], [0, 1]]),
        ("[[[true], [false]]]", "?", (None, None), [[[1], [0]]]),
        ("[18446744073709551615]", "u8", (), [2**64 - 1]),
        (
            "[[1, 123456789012345678901234567890]]",
            "f8",
            (2,),
            [[1, 1.2345678901234568e29]],
        ),
    ],
)
def test_evenly_nested_numbers_become_an_array(text, dtype, shape, values):
    """Rows keep their order, places and dtype."""
    array = read(text, TensorSpec("x", np.dtype(dtype), shape))
    np.testing.assert_array_equal(array, np.array(values, dtype), strict=True)


@pytest.mark.usefixtures("piece_bytes")
def test_nan_and_infinities_keep_their_places():
    """The tokens that TensorFlow Serving takes become the values that they name."""
    text = "[[NaN, 1, -Infinity], [Infinity,2 ,-Inf], [3, Inf,NaN]]"
    array = read(text, TensorSpec("x", np.dtype("f4"), (3,)))
    inf, nan = np.inf, np.nan
    wanted = [[nan, 1, -inf], [inf, 2, -inf], [3, inf, nan]]
    np.testing.assert_array_equal(array, np.array(wanted, "f4"), strict=True)


@pytest.mark.usefixtures("piece_bytes")
@pytest.mark.parametrize(
    ("text", "dtype", "shape", "problem"),
    [
        (
            "[[1, 2], [3]]",
            "f4",
            (2,),
            "rows[1]: expected 2 values, given 1",
        ),
        (
            "[[1, 2], [3]]",
            "f4",
            (None,),
            "rows[1]: expected 2 values, given 1",
        ),
        ("[[], [NaN]]", "f4", (1,), "rows[0]: expected 1 values, given 0"),
        ("[[[], [-Inf]]]", "f8", (None, 1), "rows[0][0]: expected 1 values, given 0"),
        ("[[1, 2], 3]", "f4", (2,), "rows[1]: expected a list, given 3"),
        ("[1, 2, [3]]", "f4", (), "rows[2]: expected float32, given a list of 1"),
        ("[[1], [true]]", "f4", (1,), "rows[1][0]: expected float32, given true"),
        ("[[1], [null]]", "i4", (1,), "rows[1][0]: expected int32, given null"),
        ("[[1], [2.5]]", "i4", (1,), "rows[1][0]: expected int32, given 2.5"),
        ("[[true], [1]]", "?", (1,), "rows[1][0]: expected bool, given 1"),
        ("[[1], [300]]", "u1", (1,), "rows[1][0]: 300 is out of range for uint8"),
        ("[[1], [-1]]", "u8", (1,), "rows[1][0]: -1 is out of range for uint64"),
        (
            "[[1, 2], [3, 1e39]]",
            "f4",
            (2,),
            "rows[1][1]: 1e+39 is out of range for float32",
        ),
        (
            "[[[1]], [[1e300]]]",
            "f2",
            (1, 1),
            "rows[1][0][0]: 1e+300 is out of range for float16",
        ),
        ("[1, 2]", "O", (), "rows[0]: expected string, given 1"),
        (
            "[[1, 2], [3, 4],]",
            "f4",
            (2,),
            "JSON Parse error: Expecting value at offset: 17",
        ),
        (
            "[[1, 2], [3 4]]",
            "f4",
            (2,),
            "JSON Parse error: Expecting ',' delimiter at offset: 13",
        ),
        ("[[1, ]2]", "i4", (2,), json_problem("[[1, ]2]")),
        ("[[1], []NaN]", "f4", (1,), "rows[1]: expected 1 values, given 0"),
        ("[1[], 2]", "i4", (1,), "rows[0]: expected a list, given 1"),
        (
            "[1 2, 3]",
            "f4",
            (),
            "JSON Parse error: Expecting ',' delimiter at offset: 3",
        ),
    ],
)
def test_first_odd_row_is_named(text, dtype, shape, problem):
    """A refusal names the place, as for values that are objects."""
    with pytest.raises(BadInput) as raised:
        read(text, TensorSpec("x", np.dtype(dtype), shape))
    assert str(raised.value).startswith(problem)


def test_rows_beyond_the_bound_stop_the_reading(monkeypatch):
    """The pieces behind the last row that is allowed are not parsed."""
    monkeypatch.setattr(pieces, "_USUAL_BYTES", 16)
    parsed = []
    parse = pieces.values
    monkeypatch.setattr(
        pieces, "values", lambda *rest: parsed.append(rest) or parse(*rest)
    )
    spec = TensorSpec("x", np.dtype("f4"), (1,))
    with pytest.raises(TooLarge, match="more than 5 rows in one request"):
        read(listed_text(["[1]"] * 1000), spec, max_rows=5)
    assert len(parsed) <= 3
    assert len(read(listed_text(["[1]"] * 5), spec, max_rows=5)) == 5


def test_check_is_called_for_each_piece(monkeypatch):
    """A deadline that passes stops the reading within the array."""
    monkeypatch.setattr(pieces, "_USUAL_BYTES", 16)
    calls = []

    def check():
        calls.append(None)
        if len(calls) == 3:
            raise Late("late")

    spec = TensorSpec("x", np.dtype("f4"), ())
    with pytest.raises(Late):
        read(listed_text(["1"] * 1000), spec, check=check)
    assert len(calls) == 3


@pytest.mark.parametrize("before", ["x", "\u00e9" * 300])
def test_place_of_an_error_counts_characters(before):
    """Neither longer bytes before the array nor Inf within it move the place."""
    text = listed_text(["[Inf, -Inf]"] * 300 + ["[01, 2]"])
    body = f"{before}{text}".encode()
    array = Numbers(body, len(before.encode()), len(body))
    place = len(before) + text.index("01") + 1
    with pytest.raises(BadInput, match=f"Expecting ',' delimiter at offset: {place}$"):
        numbers.read(array, TensorSpec("x", np.dtype("f4"), (2,)), "rows")


@pytest.fixture(name="explained")
def _explained(monkeypatch):
    """The characters of each text that is read once more to explain an error."""
    lengths = []
    first_value = json_text.first_value

    def counted(text, *rest):
        lengths.append(len(text))
        return first_value(text, *rest)

    monkeypatch.setattr(json_text, "first_value", counted)
    return lengths


@pytest.mark.parametrize("wide", ["", " " * 40_000], ids=["short", "one wide"])
def test_rows_before_a_malformed_one_are_read_once(explained, wide):
    """A small request can't have the rest of a long text read for each of its rows."""
    spec = TensorSpec("x", np.dtype("f4"), (1,))
    rows = [f"[{wide}0]", *["[0]"] * 3000, "[01]", *["[0]"] * 300_000]
    text = listed_text(rows)
    place = text.index("01") + 2
    with pytest.raises(BadInput, match=f"Expecting ',' delimiter at offset: {place}"):
        read(text, spec)
    assert sum(explained) < 4_000_000 < 3000 * len(text)


def test_check_is_called_for_each_row_that_is_explained(explained):
    """A deadline that passes stops the search for the malformed row."""

    def check():
        if len(explained) == 5:
            raise Late("late")

    spec = TensorSpec("x", np.dtype("f4"), ())
    with pytest.raises(Late):
        read(listed_text(["1"] * 1000 + ["01"]), spec, check=check)
    assert len(explained) == 5


@pytest.mark.parametrize("count", [499, 500, 501, 1003])
@pytest.mark.parametrize("dtype", ["f4", "i8"])
def test_long_rows_are_converted_in_slices(count, dtype):
    """Each value is at its place, at any number of values."""
    values = (np.random.default_rng(count).random((2, count)) * 9).astype(dtype)
    text = json_text.dumps(values).decode()
    spec = TensorSpec("x", np.dtype(dtype), (count,))
    np.testing.assert_array_equal(read(text, spec), values)


def test_text_without_a_comma_is_refused():
    """A number of a megabyte is not read."""
    spec = TensorSpec("x", np.dtype("f4"), ())
    with pytest.raises(BadInput, match="no comma in 1048576 characters at offset: 4"):
        read(listed_text(["1", "2" * (2 << 20)]), spec)


def test_threads_read_their_own_text():
    """Concurrent threads never get the rows of another thread's text."""
    spec = TensorSpec("x", np.dtype("f4"), (2,))

    def work(place):
        text = f"[[{place}, 1]]"
        for _ in range(300):
            assert read(text, spec).tolist() == [[place, 1]]

    in_parallel(work, 8)
