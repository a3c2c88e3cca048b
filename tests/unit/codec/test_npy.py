"""Rows as .npy: what is accepted, what is refused, and memory limits."""

import io
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from app.codec import npy
from app.errors import BadInput, TooLarge
from tests.support.exchanges import npy_of
from tests.support.signatures import takes, takes_several

MAGIC = b"\x93NUMPY"
NO_MAGIC = "not a .npy array: expected \\x93NUMPY as its first bytes"
MALFORMED = "not a .npy array: malformed header, expected {'descr': "


def headed(text: str, data: bytes = b"") -> bytes:
    """Return a .npy file of version 1.0 with any text as its header."""
    return MAGIC + b"\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + data


def claims(shape: str, descr: str = "<f4") -> str:
    return f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}}}\n"


def cut(expected: int, given: int) -> str:
    return (
        f"not a .npy array: cut in its header, expected {expected} bytes or more, "
        f"given {given}"
    )


def refusal(body: bytes, signature) -> str:
    with pytest.raises(BadInput) as raised:
        npy.decode(body, signature)
    return str(raised.value)


@pytest.mark.parametrize(
    ("array", "signature"),
    [
        pytest.param(np.array([[1, 2], [3, 4]], "f4"), takes("f4", 2), id="as it is"),
        pytest.param(np.array([1, 2], "f4"), takes("f4"), id="scalars"),
        pytest.param(np.ones((2, 3, 4), "u1"), takes("u1", None, 4), id="free size"),
        pytest.param(
            np.asfortranarray(np.arange(6.0).reshape(2, 3)),
            takes("f8", 3),
            id="F order",
        ),
        pytest.param(np.array([1, 256], ">f4"), takes("f4"), id="big-endian"),
        pytest.param(np.array([1, 256], ">i8"), takes("i4"), id="big-endian, narrowed"),
        pytest.param(np.array([1.5], "f8"), takes("f4"), id="narrowed"),
        pytest.param(np.array([7], "u1"), takes("f4"), id="integers for floats"),
        pytest.param(np.array([True, False]), takes("?"), id="bools"),
        pytest.param(np.array([np.nan, np.inf], "f8"), takes("f4"), id="not finite"),
    ],
)
@pytest.mark.parametrize("version", [(1, 0), (2, 0)], ids=["1.0", "2.0"])
def test_decode_npy(array, signature, version):
    """Rows that fit become one array of the input's dtype, with the same values."""
    back = npy.decode(npy_of(array, version), signature)["x"]
    assert back.dtype == signature.inputs[0].dtype
    np.testing.assert_array_equal(back, array)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_npy_rows_of_size_0_are_rows(dtype):
    """A model whose rows may be empty gets as many as the header says, and no more."""
    body = npy_of(np.zeros((3, 0), "f4"))
    assert npy.decode(body, takes(dtype, None))["x"].shape == (3, 0)
    assert npy.read_rows(body).shape == (3, 0)
    assert refusal(body, takes("f4", 2)) == "rows[0]: expected shape (2,), given (0,)"
    body = headed(claims("(1025, 0)"))
    with pytest.raises(TooLarge, match=r"^1025 rows in one request, and the queue"):
        npy.decode(body, takes(dtype, None), max_rows=1024)
    with pytest.raises(TooLarge):
        npy.read_rows(body, max_rows=1024)


def test_npy_of_size_0_is_a_whole_tensor():
    """A model that is not batched takes it if its input has such a shape."""
    signature = replace(takes("f8", None, None), takes_whole_tensors=True)
    body = npy_of(np.zeros((0, 2), "f4"))
    assert npy.decode(body, signature)["x"].shape == (1, 0, 2)
    text = "the .npy header says a shape without values whose other sizes multiply"
    assert refusal(headed(claims("(0, 16777217)")), signature).startswith(text)


def test_decode_npy_does_not_copy():
    """An array of the right dtype is a view of the body."""
    body = npy_of(np.ones((4, 2), "f4"))
    array = npy.decode(body, takes("f4", 2))["x"]
    assert np.shares_memory(array, np.frombuffer(body, "u1"))


def test_npy_with_a_signaling_nan():
    """A signaling NaN is converted without a warning."""
    body = headed(claims("(1,)"), b"\x01\x00\xa0\x7f")
    assert np.isnan(npy.decode(body, takes("f8"))["x"]).all()


def test_npy_bool_that_is_neither_0_nor_1_is_refused():
    """TensorFlow would compute with the byte: a true value that counts as 255."""
    body = npy_of(np.array([[True]]))
    assert npy.read(body).tolist() == [[True]]
    with pytest.raises(BadInput, match="a bool is 0 or 1, given 255"):
        npy.read(body[:-1] + b"\xff")


def test_npy_size_of_true():
    """A size of True counts as 1, as in Python."""
    body = headed(claims("(True, 2)"), np.ones(2, "f4").tobytes())
    assert npy.decode(body, takes("f4", 2))["x"].shape == (1, 2)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        pytest.param(b"", NO_MAGIC, id="empty"),
        pytest.param(b"PK\x03\x04" * 9, NO_MAGIC, id="a zip file"),
        pytest.param(MAGIC[:4], NO_MAGIC, id="cut in the magic"),
        pytest.param(MAGIC + b"\x01", cut(10, 7), id="cut in the version"),
        pytest.param(MAGIC + b"\x02\x00", cut(12, 8), id="no length"),
        pytest.param(MAGIC + b"\x01\x00\x76", cut(128, 9), id="cut in the length"),
        pytest.param(npy_of(np.ones(3))[:40], cut(128, 40), id="cut header"),
        pytest.param(
            MAGIC + b"\x03\x00",
            "not a .npy array: expected format version 1.0 or 2.0, given 3.0",
            id="version 3.0",
        ),
        pytest.param(headed("-" * 9000 + "1"), MALFORMED, id="deep header"),
        pytest.param(headed("[" * 9000), MALFORMED, id="open header"),
        pytest.param(headed("\0" * 9000), MALFORMED, id="zeros as header"),
        pytest.param(headed("{}"), MALFORMED, id="no keys"),
        pytest.param(headed("print()"), MALFORMED, id="a call as header"),
        pytest.param(
            headed(claims("(1,)") + " " * 20_000), MALFORMED, id="long header"
        ),
        pytest.param(headed(claims("(1.5,)")), MALFORMED, id="1.5 rows"),
        pytest.param(
            MAGIC + b"\x02\x00\xff\xff\xff\xff" + claims("(1,)").encode(),
            cut((1 << 32) + 11, 68),
            id="header of 4 GiB",
        ),
        pytest.param(
            npy_of(np.array(["a"])),
            "the .npy array holds str32, not numbers",
            id="text",
        ),
        pytest.param(
            npy_of(np.array([1j])), "the .npy array holds complex128, not", id="complex"
        ),
        pytest.param(
            *(npy_of(np.zeros(2, "f4,i4")), "the .npy array holds void64, not"),
            id="structured",
        ),
        pytest.param(
            npy_of(np.array(["2026-01-01"], "M8[D]")),
            "the .npy array holds dat",
            id="date",
        ),
        pytest.param(
            headed(claims("(1,)", "|O"), b"cos\nsystem\n(S'true'\ntR."),
            "the .npy array holds object, not numbers",
            id="pickle",
        ),
    ],
)
def test_malformed_npy_is_refused(body, text):
    """A file that is not .npy, or holds no numbers, is refused in a short text.

    The text has no object of the interpreter, whose address NumPy's texts may show.
    """
    assert refusal(body, takes("f4")).startswith(text)
    assert len(refusal(body, takes("f4"))) < 250


@pytest.mark.parametrize(
    ("shape", "data", "text"),
    [
        ("(2,)", b"1234", "says (2,) of float32, which is 8"),
        ("(1,)", b"12345", "which is 4 bytes; 5 follow"),
        ("(-1,)", b"1234", "says (-1,) of float32"),
        ("(-1, -1)", b"1234", "says (-1, -1) of"),
        ("(1099511627776,)", b"1234", "is 4398046511104 bytes"),
        ("(1 << 70,)", b"", "not a .npy array: "),
        (f"({1 << 63},)", b"", "a shape that no array has"),
        pytest.param(f"({'9' * 4000}, 1)", b"", "no array has", id="4000 digits"),
        pytest.param(f"(0x{'f' * 9000},)", b"", "no array has", id="9000 hex digits"),
        pytest.param(f"(-0x{'f' * 9000},)", b"", "no array has", id="minus these"),
        pytest.param(f"({'1,' * 70})", b"1234", "no array has", id="70 dimensions"),
        ("(0,)", b"", "has no rows"),
        ("(0, 3)", b"", "has no rows"),
        (f"({1 << 24}, 0, 2)", b"", "a shape without values whose other sizes"),
        (f"(1, {1 << 62}, 0, {1 << 62})", b"", "multiply to more than 16777216"),
        ("()", b"1234", "is a single value, expected rows"),
    ],
)
def test_npy_header_that_does_not_fit_is_refused(shape, data, text):
    """A header that claims another size than the data has is refused."""
    refused = refusal(headed(claims(shape), data), takes("f4", None))
    assert text in refused
    assert len(refused) < 250


@pytest.mark.parametrize(
    "body",
    [
        headed(claims(f"({1 << 40},)"), b"1234"),
        headed(claims(f"({1 << 40}, 0)")),
        headed(claims("(1,)", f"<U{1 << 28}")),
        MAGIC + b"\x02\x00\xff\xff\xff\xff",
    ],
    ids=["rows", "rows of nothing", "wide values", "header"],
)
def test_npy_header_allocates_nothing(body):
    """A claim of terabytes is refused before memory is allocated."""
    tracemalloc.start()
    try:
        refusal(body, takes("f4"))
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1 << 20


@pytest.mark.parametrize(
    ("array", "signature", "text"),
    [
        (np.ones((2, 3), "f4"), takes("f4", 2), "[0]: expected shape (2,), given (3,)"),
        (
            np.ones(2, "f4"),
            takes("f4", None, 3),
            "[0]: expected shape (any, 3), given ()",
        ),
        (np.ones(2, "f4"), takes("i4"), ": expected int32, given float32"),
        (np.ones(2, "?"), takes("f4"), ": expected float32, given bool"),
        (np.ones(2, "u1"), takes("?"), ": expected bool, given uint8"),
        (
            np.array([[0, 1], [2, 300]]),
            takes("u1", 2),
            "[1][1]: 300 is out of range for uint8",
        ),
        (
            np.array([2**63], "u8"),
            takes("i8"),
            f"[0]: {2**63} is out of range for int64",
        ),
        (
            np.array([np.inf, 1e39]),
            takes("f4"),
            "[1]: 1e+39 is out of range for float32",
        ),
    ],
    ids=[
        *("shape", "no shape", "float", "bool", "int", "uint8 range", "int64 range"),
        "float32 range",
    ],
)
def test_npy_rows_that_do_not_fit_are_refused(array, signature, text):
    """An array of another shape, type or range is refused with the place."""
    assert refusal(npy_of(array), signature) == f"rows{text}"


def test_npy_for_several_inputs_is_refused():
    """The refusal names the inputs of the model."""
    signature = takes_several(a=("f4",), b=("f4",))
    assert refusal(npy_of(np.ones(1)), signature) == (
        ".npy carries one input, this model takes several: a, b"
    )


@pytest.mark.parametrize(
    "array",
    [
        np.array([[1, 2], [3, 4]], "f4"),
        np.array([[1, 2], [3, 4]], "f4").T,
        np.array([np.nan, -0.0], "f8"),
        np.array([1], "i8"),
    ],
    ids=["plain", "not contiguous", "not finite", "integers"],
)
def test_encode_npy(array):
    """One output becomes a .npy file that NumPy reads."""
    back = np.load(io.BytesIO(npy.encode({"y": array})), allow_pickle=False)
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)


def test_encode_npy_of_several_outputs_or_strings_is_refused():
    """Several outputs, and strings, which need pickle, are refused."""
    with pytest.raises(BadInput, match=r"several: y, z; ask for JSON$"):
        npy.encode({"y": np.ones(1), "z": np.ones(1)})
    uneven = np.empty(2, object)
    uneven[:] = np.zeros(1), np.zeros(2)
    with pytest.raises(BadInput, match="this model gives rows of unlike shapes; ask"):
        npy.encode({"y": uneven})
    with pytest.raises(BadInput, match=r"this model gives strings; ask for JSON$"):
        npy.encode({"y": np.array([b"Ann"], object)})
