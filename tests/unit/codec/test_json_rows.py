"""Plain rows: the quick reader and writer give what the codec of all forms gives."""

import json

import hypothesis.extra.numpy as numpy_arrays
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.codec import rows
from app.codec.bounds import Bounds
from app.codec.json_rows import plain_input, read_plain_rows, write_plain_rows
from app.engines.base import DEFAULT_SIGNATURE
from app.errors import BasketError
from tests.support.signatures import takes, takes_several

MAX_ROWS = 4
EXAMPLES = 60
DTYPES = ["f4", "f8", "i8"]
ODD = [
    *("-0", "-0.0", "0e0", "0.0", "-0e-5", "1E5", "1e+5", "100e-2", "1.50", "5e-324"),
    *("3.4028235e38", "3.4028236e38", "-3.5e38", "1e39", "1e308", "1e400", "1e-400"),
    *("16777217", "9007199254740993", "0.1", "1.17549435e-38", "1e-45", "1e-46"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808"),
    *("18446744073709551615", "18446744073709551616", "1" * 30, "9" * 400),
    *("0." + "1" * 400, "2.5", "1e2", "1e30", "7038531e-32"),
]
WRONG = [
    *("true", "false", "null", '"1"', '"NaN"', "{}", "[]", "[1]", "[[1, 2]]", ""),
    *("NaN", "Infinity", "-Infinity", "Inf", "01", "+1", ".5", "1.", "1e", "0x1"),
    *("1_0", "--1", "1 2", '{"b64": "AAE="}', "tru", '"', "\ufeff1", "\x00"),
]
numbers = (
    st.integers(-(10**20), 10**20).map(str)
    | st.integers(-200, 200).map(str)
    | st.floats(allow_nan=False, allow_infinity=False).map(repr)
    | st.floats(width=32, allow_nan=False, allow_infinity=False).map(repr)
    | st.from_regex(r"-?[0-9]{1,25}(\.[0-9]{1,25})?(e[+-]?[0-9]{1,2})?", fullmatch=True)
    | st.sampled_from(ODD)
)
values = numbers | numbers | numbers | st.sampled_from(WRONG)
blanks = st.sampled_from(["", "", "", " ", "\n", "\t ", "\r\n"])


def written(listed, blank):
    inner = f"{blank},{blank}".join(listed)
    return f"[{blank}{inner}{blank}]"


@st.composite
def good_bodies(draw, size):
    """Return a body of rows of so many numbers."""
    row = st.lists(numbers, min_size=size, max_size=size)
    listed = draw(st.lists(row, min_size=1, max_size=MAX_ROWS))
    blank = draw(blanks)
    whole = written([written(each, blank) for each in listed], blank)
    return f'{blank}{{{blank}"instances"{blank}:{blank}{whole}{blank}}}{blank}'


@st.composite
def ragged_bodies(draw):
    """Return a body of lists of numbers of any lengths, and of what is no number."""
    listed = draw(
        st.lists(
            st.lists(values, max_size=4).map(lambda each: written(each, "")) | values,
            max_size=MAX_ROWS + 2,
        )
    )
    return f'{{"instances": {written(listed, "")}}}'


KEYS = [
    '"instances": [[1, 2]]',
    '"signature_name": "serving_default"',
    '"signature_name": "other"',
    '"inputs": [[1]]',
    '"a": {"instances": 1}',
    '"a": [[2], 3]',
    '"a": "[["',
    '"": 1',
]
TAILS = ["x", "{}", "]", " 1", "\x00", ",", "\ufeff"]
PARTS = ["[", "]", ",", "0", "-", ".", "e", '"', " ", "\\", "é"]


@st.composite
def other_bodies(draw, size):
    """Return a body that is nearly a plain one."""
    body = draw(good_bodies(size))
    end, place = body.rindex("}"), draw(st.integers(0, len(body)))
    key, name = draw(st.sampled_from(KEYS)), draw(st.sampled_from(["inputs", "Inst"]))
    found: str = draw(
        st.sampled_from(
            [
                f"{body[:end]}, {key}{body[end:]}",
                body.replace("{", f"{{{key}, ", 1),
                body + draw(st.sampled_from(TAILS)),
                body.replace("instances", name),
                body[:place] + body[place + draw(st.integers(1, 3)) :],
                body[:place] + draw(st.sampled_from(PARTS)) + body[place:],
            ]
        )
    )
    return found


def read(body: bytes, dtype: str, size: int):
    """Return the plain rows of a body, once they are known to be those of the codec."""
    signature = takes(dtype, size)
    found = read_plain_rows(body, plain_input(signature), MAX_ROWS)
    try:
        request = rows.decode(
            body, {DEFAULT_SIGNATURE: signature}, bounds=Bounds(MAX_ROWS)
        )
    except BasketError:
        assert found is None
        return None
    if found is not None:
        expected = request.inputs["x"]
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert found.tobytes() == expected.tobytes()
        assert request.signature_name == DEFAULT_SIGNATURE
        assert request.form == rows.ROWS
        assert request.timeout_s is None
    return found


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data(), size=st.integers(1, 4))
@settings(max_examples=EXAMPLES)
def test_rows_of_numbers_are_read_to_the_bit(dtype, data, size):
    """Each number is rounded as by the codec, or the body is left to it."""
    read(data.draw(good_bodies(size)).encode(), dtype, size)


@pytest.mark.parametrize("dtype", DTYPES)
@given(body=ragged_bodies(), size=st.integers(1, 4))
@settings(max_examples=EXAMPLES)
def test_what_the_codec_refuses_is_not_read(dtype, body, size):
    """Ragged and nested rows, bools, strings, NaN, and rows of another length."""
    read(body.encode(), dtype, size)


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data(), size=st.integers(1, 3))
@settings(max_examples=EXAMPLES)
def test_body_that_is_nearly_plain_is_left_to_the_codec(dtype, data, size):
    """Other keys, keys that come twice, text behind the JSON, and cut bodies."""
    read(data.draw(other_bodies(size)).encode(), dtype, size)


@pytest.mark.parametrize("dtype", DTYPES)
@given(body=st.binary(max_size=60))
@example(body=b"")
@example(body=b"\xff\xfe")
@example(body=b'\xef\xbb\xbf{"instances": [[1, 2]]}')
def test_any_bytes_are_read_or_left_to_the_codec(dtype, body):
    """Nothing raises."""
    read(body, dtype, 2)
    read(b'{"instances": [[' + body + b"]]}", dtype, 2)
    read(b'{"instances": ' + body + b"}", dtype, 2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("number", ODD)
def test_odd_number_is_read_to_the_bit(dtype, number):
    """Negative zero, subnormal, huge and long numbers, alone and among others."""
    read(b'{"instances": [[%b]]}' % number.encode(), dtype, 1)
    read(b'{"instances": [[1, %b], [2, 3]]}' % number.encode(), dtype, 2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("value", WRONG)
def test_value_that_is_no_number_is_not_read(dtype, value):
    """In the place of a number, of a row, and of all rows."""
    for body in ("[[%s]]", "[[1], [%s]]", "[%s]", "[[1], %s]", "%s"):
        read(f'{{"instances": {body % value}}}'.encode(), dtype, 1)


@pytest.mark.parametrize(
    "body",
    [
        '{"instances": []}',
        '{"instances": [[]]}',
        '{"instances": [[], []]}',
        '{"instances": [[1, 2], [3]]}',
        '{"instances": [[1, 2, 3], [4]]}',
        '{"instances": [[[1, 2]]]}',
        '{"instances": [[1, [2]]]}',
        '{"instances": [1, 2]}',
        '{"instances": [[1, 2]], "instances": [[3, 4]]}',
        '{"instances": [[1, 2]], "a": 1}',
        '{"instances": [[1, 2]]} x',
        '{"instances": [[1, 2]]}{}',
        '{"instances": [[1, NaN]]}',
        '{"instances": [[1, Infinity]]}',
        '{"instances": [[1, true]]}',
        '{"instances": [[1, "2"]]}',
        '{"instances": "[1, 2]"}',
        '{"instances": {"a": [1, 2]}}',
        '{"inputs": [[1, 2]]}',
        "[[1, 2]]",
        "{}",
        "",
        '{"instances": [[1, 2], [1, 2], [1, 2], [1, 2], [1, 2]]}',
    ],
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_other_form_is_not_read(dtype, body):
    """Neither what is wrong, nor what only the codec of all forms takes."""
    assert read(body.encode(), dtype, 2) is None


@pytest.mark.parametrize("dtype", DTYPES)
def test_plain_rows_are_read(dtype):
    """The tests above do not pass because nothing is read."""
    listed = [[1, -2], [3, 4], [0, 2**40]]
    found = read(json.dumps({"instances": listed}).encode(), dtype, 2)
    assert found.tolist() == listed
    if dtype != "i8":
        found = read(b'{"instances": [[1.5, -0.0], [1e-3, 250]]}', dtype, 2)
        assert found.tolist() == np.array([[1.5, -0.0], [1e-3, 250]], dtype).tolist()
        assert np.signbit(found[0, 1])


@pytest.mark.parametrize(("columns", "is_read"), [(4096, True), (20_000, True)])
def test_many_values_are_read(columns, is_read):
    """Also more than fit into one product of vectors, if none is too large."""
    listed = [[0.5] * columns, [1.5] * columns]
    body = json.dumps({"instances": listed}).encode()
    assert (read(body, "f4", columns) is not None) is is_read
    listed[1][-1] = 1e39
    assert read(json.dumps({"instances": listed}).encode(), "f4", columns) is None


def test_array_does_not_share_the_parsers_memory():
    """The next body of the thread does not change the rows of the last one."""
    for dtype in DTYPES:
        first = read(b'{"instances": [[1, 2], [3, 4]]}', dtype, 2)
        read(b'{"instances": [[9, 9], [9, 9]]}', dtype, 2)
        assert first.tolist() == [[1, 2], [3, 4]]
        assert first.flags.owndata or first.base.flags.owndata


@pytest.mark.parametrize(
    "signature",
    [
        takes("f4"),
        takes("f4", None),
        takes("f4", 2, 2),
        takes("f4", 0),
        takes("f2", 2),
        takes("i4", 2),
        takes("u8", 2),
        takes("?", 2),
        takes("O", 2),
        takes(">f4", 2),
        takes_several(a=("f4", 2), b=("f4", 2)),
        None,
    ],
    ids=str,
)
def test_other_signatures_have_no_plain_input(signature):
    """Their rows are not of one dimension of a known size, or of other dtypes."""
    plain = plain_input(signature)
    if plain is None:
        return
    # A byte order is the machine's own in the array.
    found = read_plain_rows(b'{"instances": [[1, 2]]}', plain, 1)
    assert found.dtype == signature.inputs[0].dtype
    assert found.tolist() == [[1, 2]]
    assert signature.inputs[0].dtype.str == ">f4"


arrays = numpy_arrays.arrays(
    st.sampled_from(["f4", "f8", "i4", "i8", "f2", "u1", "?"]),
    numpy_arrays.array_shapes(min_dims=1, max_dims=3, max_side=4),
)


@given(array=arrays)
@settings(max_examples=EXAMPLES)
def test_outputs_are_written_as_by_the_codec(array):
    """The same bytes, or they are left to the codec: NaN, infinities, other dtypes."""
    outputs = {"y": array}
    body = write_plain_rows(outputs)
    if body is not None:
        assert body == rows.encode(outputs)
    elif array.dtype.kind == "f" and array.dtype.itemsize > 2:
        assert not np.isfinite(array).all()


@pytest.mark.parametrize(
    "outputs",
    [
        {"y": np.array([[1.5, np.nan]], "f4")},
        {"y": np.array([[np.inf]], "f8")},
        {"y": np.array([-np.inf], "f4")},
        {"y": np.array(["a"], object)},
        {"y": np.array([[True]])},
        {"y": np.float32(1.0)},
        {"y": np.zeros((1, 2), "f4"), "z": np.zeros((1, 2), "f4")},
        {},
    ],
    ids=str,
)
def test_other_outputs_are_left_to_the_codec(outputs):
    """Several outputs, texts, bools, and numbers that JSON does not have."""
    assert write_plain_rows(outputs) is None


def test_view_of_a_batch_is_written_as_its_rows():
    """The outputs of a job may be a part of a larger array, in any order of memory."""
    batch = np.arange(24, dtype="f4").reshape(6, 4)
    for view in (batch[2:4], batch[:, :2], batch.T, batch[::2], batch[::-1]):
        outputs = {"y": view}
        body = write_plain_rows(outputs)
        assert body is None or body == rows.encode(outputs)
