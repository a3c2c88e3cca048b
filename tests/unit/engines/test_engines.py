"""Which engine opens which folder, and how a row's shape is compared and written."""

import errno
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from app import engines
from app.engines.base import TensorSpec
from app.engines.simulated import SimulatedEngine
from app.errors import ModelLoadError, NotYetLoadable
from app.settings import Settings

FLOAT32 = np.dtype(np.float32)


@pytest.fixture
def opened(monkeypatch):
    """What was opened, as (module, file); no framework is imported."""
    calls = []

    def import_module(name):
        return SimpleNamespace(open_engine=lambda file, _: calls.append((name, file)))

    monkeypatch.setattr(engines, "import_module", import_module)
    return calls


def make_entry(path, name):
    path.mkdir() if name.endswith("/") else path.touch()


@pytest.mark.parametrize(
    ("files", "chosen", "module"),
    [
        (["model.keras"], "model.keras", "tensorflow.keras_file"),
        (["model.h5"], "model.h5", "tensorflow.keras_file"),
        (["saved_model.pb", "variables/"], "saved_model.pb", "tensorflow.saved_model"),
        (["simulated.json"], "simulated.json", "simulated"),
        (["simulated.json", "model.keras"], "model.keras", "tensorflow.keras_file"),
        (["README.md", "model.h5"], "model.h5", "tensorflow.keras_file"),
    ],
    ids=[
        *("keras", "h5", "SavedModel", "simulated"),
        *("a real model first", "beside another file"),
    ],
)
def test_file_decides(tmp_path, opened, files, chosen, module):
    """The file in the folder decides which engine opens it."""
    for name in files:
        make_entry(tmp_path / name, name)
    engines.open_engine(tmp_path, Settings())
    assert opened == [(f"app.engines.{module}", tmp_path / chosen)]


def test_simulated_for_real(tmp_path):
    """The module that the file decides on is really there and opens it."""
    (tmp_path / "simulated.json").write_text("{}")
    engine = engines.open_engine(tmp_path, Settings())
    assert isinstance(engine, SimulatedEngine)


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        ([], "nothing"),
        (["model.pt", "a"], "a, model.pt"),
        (["model.keras/"], "model.keras"),
        (list("fedcba"), "a, b, c, d, e, ..."),
    ],
)
def test_nothing_known(tmp_path, opened, names, shown):
    """A folder without a known file is refused with what it holds and should hold."""
    folder = tmp_path / "3"
    folder.mkdir()
    for name in names:
        make_entry(folder / name, name)
    with pytest.raises(ModelLoadError) as raised:
        engines.open_engine(folder, Settings())
    assert str(raised.value) == (
        f"version 3 holds {shown}; expected one of: model.keras, model.h5, "
        "saved_model.pb, simulated.json, tensorflow_serving.json"
    )
    assert opened == []


def test_a_folder_or_file_that_can_not_be_read(tmp_path, opened, monkeypatch):
    """It is told by name, reason and who the server is, and is worth another try."""
    monkeypatch.setattr("os.geteuid", lambda: 61234)
    (tmp_path / "7").symlink_to("x" * 300)
    reason = r"can't be read: File name too long \(the server runs as uid 61234\)$"
    with pytest.raises(NotYetLoadable, match=f"^version 7 {reason}"):
        engines.open_engine(tmp_path / "7", Settings())
    (tmp_path / "model.keras").touch()

    def refuse(file, mode):
        raise OSError(errno.ENAMETOOLONG, "File name too long")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(NotYetLoadable, match=rf"^model\.keras {reason}"):
        engines.open_engine(tmp_path, Settings())
    assert opened == []


@pytest.mark.parametrize(
    ("wanted", "given", "fits"),
    [
        ((), (), True),
        ((2,), (2,), True),
        ((2,), (3,), False),
        ((2,), (2, 1), False),
        ((2,), (), False),
        ((None, 2), (7, 2), True),
        ((None, 2), (0, 2), True),
        ((None, 2), (7, 3), False),
    ],
)
def test_accepts(wanted, given, fits):
    """A shape fits when it has as many sizes and each is the wanted one or free."""
    assert TensorSpec("x", FLOAT32, wanted).accepts(given) is fits


@pytest.mark.parametrize(
    ("shape", "text"),
    [((), "()"), ((3,), "(3,)"), ((None,), "(any,)"), ((None, 16), "(any, 16)")],
)
def test_shape_text(shape, text):
    """A shape is written as a tuple, with any for a free size."""
    assert TensorSpec("x", FLOAT32, shape).shape_text() == text


def test_blank():
    """Blank rows are zeros of the input's dtype, with free sizes taken as one."""
    blank = TensorSpec("x", np.dtype(np.int16), (None, 3)).blank(2)
    assert blank.dtype == np.int16
    assert blank.tolist() == [[[0, 0, 0]], [[0, 0, 0]]]
