"""Blocks of captured requests: what is written is read again, without pickle."""

import zipfile

import numpy as np
import pytest

from app.capture.blocks import UnreadableBlock, encode, read
from app.capture.captured import JSON, ROWS, Captured, grouped, joined


def request(number, rows=1, size=3, form=ROWS, **inputs):
    """Return a request whose rows have `size` values, all of them its number."""
    x = np.full((rows, size), number, np.float32)
    outputs = {"y": x[:, :1].astype(np.float16)}
    about = (rows, 1e9 + number, f"id-{number}", 7, rows + 1, 0.25)
    return Captured("serving_default", {"x": x, **inputs}, outputs, form, *about)


def written(tmp_path, requests):
    file = tmp_path / "block.npz"
    file.write_bytes(encode(grouped(requests)))
    return file


def test_block_is_read_again(tmp_path):
    """Rows, ids, times and versions of each request are what they were."""
    (group,) = read(written(tmp_path, [request(1), request(2, rows=3)]))
    assert (len(group), group.signature_name, group.form) == (
        2,
        "serving_default",
        ROWS,
    )
    assert group.columns["request_id"].tolist() == [b"id-1", b"id-2"]
    assert group.columns["rows"].tolist() == [1, 3]
    assert group.columns["batch_rows"].tolist() == [2, 4]
    assert group.columns["version"].tolist() == [7, 7]
    assert group.columns["latency_s"].tolist() == [0.25, 0.25]
    assert str(group.columns["time"][0]) == "2001-09-09T01:46:41.000000"
    first, second = (group.inputs["x"][rows] for rows in group.slices())
    assert (first.tolist(), len(second), second[0, 0]) == ([[1, 1, 1]], 3, 2)
    assert group.outputs["y"].dtype == np.float16


def test_numpy_reads_a_block_without_pickle(tmp_path):
    """Its members have the names that the documentation gives."""
    strings = np.array([[b"a\0", b""], [b"\xff", b"bc"]], object)
    file = written(tmp_path, [request(1, rows=2, t=strings), request(2, size=4)])
    with np.load(file, allow_pickle=False) as block:
        found = {name: block[name] for name in block.files}
    assert found["inputs/x"].shape == (2, 3)
    assert found["1/inputs/x"].tolist() == [[2, 2, 2, 2]]
    assert found["inputs/t.lengths"].tolist() == [[2, 0], [1, 2]]
    assert found["inputs/t.bytes"].tobytes() == b"a\0\xffbc"
    assert not any(array.dtype.hasobject for array in found.values())


def test_strings_are_read_again(tmp_path):
    """Zeros at the end, and bytes that are no UTF-8, stay."""
    strings = np.array([b"a\0", b"\xff", b""], object)
    (group,) = read(written(tmp_path, [request(1, rows=3, t=strings)]))
    assert group.inputs["t"].tolist() == strings.tolist()


def test_request_with_a_further_tensor_is_a_group_of_its_own(tmp_path):
    """Its tensors are not lost beside a first request that lacks one."""
    more = {"z": np.zeros((1, 3))}
    first, second = read(written(tmp_path, [request(1), request(2, **more)]))
    assert [*first.inputs, *second.inputs] == ["x", "x", "z"]


def test_scalar_rows_and_no_rows_are_read_again(tmp_path):
    """Rows of shape () and tensors without values keep their shapes."""
    inputs = {"s": np.array([1, 2]), "e": np.empty((2, 0, 3), np.int8)}
    (group,) = read(written(tmp_path, [request(1, rows=2, **inputs)]))
    assert group.inputs["s"].tolist() == [1, 2]
    assert group.inputs["e"].shape == (2, 0, 3)


def test_unlike_requests_are_groups_of_one_block(tmp_path):
    """Shape, dtype, signature and form each make a group of their own."""
    kinds = [
        request(1),
        request(2, size=4),
        request(3, x=np.zeros((1, 3))),
        request(4, form=JSON),
        request(5)._replace(signature_name="other"),
    ]
    groups = read(written(tmp_path, [*kinds, request(6)]))
    assert [len(each) for each in groups] == [2, 1, 1, 1, 1]
    again = joined([*groups, *groups])
    assert [len(each) for each in again] == [4, 2, 2, 2, 2]
    assert again[0].columns["request_id"].tolist() == [b"id-1", b"id-6"] * 2
    assert [int(each) for each in again[0].inputs["x"][:, 0]] == [1, 6, 1, 6]


def damaged():
    """Contents of files that are no blocks."""
    good = encode(grouped([request(1, rows=2)]))
    yield "empty", b"", "can't be read"
    yield "text", b"no block at all", "can't be read"
    yield "cut off", good[: len(good) // 2], "can't be read"
    yield "flipped", good.replace(b"\0\0\x80?", b"\0\0\x80@", 1), "CRC"


@pytest.mark.parametrize(
    ("content", "reason"),
    [case[1:] for case in damaged()],
    ids=[case[0] for case in damaged()],
)
def test_damaged_file_is_unreadable(tmp_path, content, reason):
    """Whatever NumPy raises is one error, with the reason."""
    file = tmp_path / "block.npz"
    file.write_bytes(content)
    with pytest.raises(UnreadableBlock, match=reason):
        read(file)


def test_foreign_npz_is_unreadable(tmp_path):
    """A file of arrays that Basket has not written is refused."""
    np.savez(tmp_path / "foreign.npz", x=np.zeros(3))
    with pytest.raises(UnreadableBlock, match="no captured requests"):
        read(tmp_path / "foreign.npz")


def test_pickles_are_not_read(tmp_path):
    """A member that NumPy would have to unpickle is refused."""
    file = written(tmp_path, [request(1)])
    np.savez(tmp_path / "evil.npz", x=np.array([print], object))
    with (
        zipfile.ZipFile(tmp_path / "evil.npz") as evil,
        zipfile.ZipFile(file, "a") as block,
    ):
        block.writestr("inputs/z.npy", evil.read("x.npy"))
    with pytest.raises(UnreadableBlock, match="allow_pickle=False"):
        read(file)


def test_columns_that_do_not_fit_are_unreadable(tmp_path):
    """A block whose rows are not as many as its requests say is refused."""
    file = tmp_path / "block.npz"
    (group,) = grouped([request(1, rows=2)])
    lost = {name: array[:1] for name, array in group.inputs.items()}
    file.write_bytes(encode([type(group)(*("s", ROWS), group.columns, lost, {})]))
    with pytest.raises(UnreadableBlock, match="do not fit together"):
        read(file)


def test_folder_is_unreadable(tmp_path):
    """A folder with the name of a block is no error of NumPy's."""
    with pytest.raises(UnreadableBlock, match="no file"):
        read(tmp_path)
