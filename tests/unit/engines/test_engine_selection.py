"""Selection of the engine by the version's file and by BASKET_ENGINE."""

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

from app import engines
from app.engines.simulated import SimulatedEngine
from app.errors import ModelLoadError, NotYetLoadable, SettingsError
from app.settings import Settings, checks
from tests.support.engines import Echo


@pytest.fixture(autouse=True)
def _restore_keras_backend(monkeypatch):
    """Undo what opening an engine sets, for other tests."""
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")


@pytest.fixture
def opened(monkeypatch):
    """Record (module, file, Keras backend) of opened engines; import no framework."""
    calls = []

    class Module:
        def __init__(self, name):
            self.name = name

        def open_engine(self, file, settings):
            calls.append((self.name, file, os.environ["KERAS_BACKEND"]))
            return Echo()

    monkeypatch.setattr(engines, "import_module", Module)
    return calls


def make_entry(path, name):
    path.mkdir() if name.endswith("/") else path.touch()


@pytest.mark.parametrize(
    ("files", "chosen", "module"),
    [
        (["model.keras"], "model.keras", "tensorflow.keras_file"),
        (["model.h5"], "model.h5", "tensorflow.keras_file"),
        (["saved_model.pb", "variables/"], "saved_model.pb", "tensorflow.saved_model"),
        (["model.tflite"], "model.tflite", "litert.engine"),
        (["model.onnx", "model.onnx.data"], "model.onnx", "onnx.engine"),
        (["simulated.json"], "simulated.json", "simulated"),
        (["simulated.json", "model.keras"], "model.keras", "tensorflow.keras_file"),
        (["README.md", "model.h5"], "model.h5", "tensorflow.keras_file"),
    ],
    ids=[
        *("keras", "h5", "SavedModel", "TFLite", "ONNX", "simulated"),
        *("real model first", "other file"),
    ],
)
def test_file_in_version_folder_selects_the_engine(
    tmp_path, opened, files, chosen, module
):
    """Each kind of model file is opened by its engine's module."""
    for name in files:
        make_entry(tmp_path / name, name)
    engines.open_engine(tmp_path, Settings())
    assert opened == [(f"app.engines.{module}", tmp_path / chosen, "tensorflow")]


def test_keras_file_of_any_name_is_opened_with_the_service_beside_it(tmp_path, opened):
    """In the folder that BASKET_MODEL names, as without service.py."""
    (tmp_path / "mood.keras").touch()
    (tmp_path / "service.py").write_text("def predict(model, batch): ...")
    engines.open_engine(tmp_path, Settings(model=tmp_path, user_code=True))
    file = tmp_path / "mood.keras"
    assert opened == [("app.engines.tensorflow.keras_file", file, "tensorflow")]


@pytest.mark.parametrize(
    "names", [["encoder.onnx"], ["encoder.onnx", "decoder.onnx"], ["data.hdf5"]]
)
def test_other_files_beside_a_service_are_its_own(tmp_path, opened, names):
    """Only a .keras or .h5 file may have any name there."""
    for name in names:
        (tmp_path / name).touch()
    (tmp_path / "service.py").write_text("def predict(model, batch): ...")
    engines.open_engine(tmp_path, Settings(model=tmp_path, user_code=True)).close()
    assert not opened


def test_two_keras_files_beside_a_service_are_a_load_error(tmp_path, opened):
    """Nobody can tell which one is the model."""
    for name in ("one.keras", "two.h5"):
        (tmp_path / name).touch()
    (tmp_path / "service.py").write_text("def predict(model, batch): ...")
    with pytest.raises(
        ModelLoadError, match=r"holds one\.keras and two\.h5: name one$"
    ):
        engines.open_engine(tmp_path, Settings(model=tmp_path, user_code=True))


def test_framework_is_imported_before_the_service(tmp_path, monkeypatch):
    """What is there when a framework was imported is frozen, and stays in memory."""
    seen = []

    class Module:
        def __init__(self, name):
            seen.append((tmp_path / "imported").exists())

        def open_engine(self, file, settings):
            seen.append((tmp_path / "imported").exists())
            return Echo()

    monkeypatch.setattr(engines, "import_module", Module)
    (tmp_path / "model.keras").touch()
    (tmp_path / "service.py").write_text(
        "import pathlib\n"
        "def predict(model, batch): ...\n"
        "pathlib.Path(__file__).with_name('imported').touch()\n"
    )
    engines.open_engine(tmp_path, Settings(user_code=True))
    assert seen == [False, True]


def test_service_that_is_removed_during_its_load_is_a_load_error(tmp_path, monkeypatch):
    """As if it had not been there."""
    service = tmp_path / "service.py"
    service.touch()
    monkeypatch.setattr(engines, "find_service", lambda *_: service.unlink())
    with pytest.raises(ModelLoadError, match="is empty"):
        engines.open_engine(tmp_path, Settings(user_code=True))


def test_service_beside_a_lone_file_is_named_in_the_log(tmp_path, opened, caplog):
    """It is not run, as the folder may be anybody's; its folder can be served."""
    (tmp_path / "mood.keras").touch()
    (tmp_path / "service.py").write_text("raise AssertionError")
    engines.open_engine(tmp_path / "mood.keras", Settings(user_code=True))
    assert caplog.messages == [
        "service.py beside mood.keras is not run: set BASKET_MODEL to their folder"
    ]
    engines.open_engine(tmp_path / "mood.keras", Settings())
    assert len(caplog.messages) == 1
    assert len(opened) == 2


@pytest.mark.parametrize("file", ["model.keras", "model.h5"])
@pytest.mark.parametrize(
    ("engine", "backend"),
    [("tensorflow", "tensorflow"), ("openvino", "tensorflow"), ("jax", "jax")],
)
def test_engine_setting_selects_module_and_backend_for_keras_files(
    tmp_path, opened, monkeypatch, file, engine, backend
):
    """BASKET_ENGINE selects an existing module, and overrides KERAS_BACKEND."""
    monkeypatch.setenv("KERAS_BACKEND", "numpy")
    (tmp_path / file).touch()
    engines.open_engine(tmp_path, Settings(engine=engine))
    module = f"app.engines.{engine}.keras_file"
    assert opened == [(module, tmp_path / file, backend)]
    assert (Path(engines.__file__).parent / engine / "keras_file.py").is_file()


@pytest.mark.parametrize(
    ("server", "own", "module"),
    [
        ("tensorflow", "openvino", "openvino.keras_file"),
        ("openvino", "tensorflow", "tensorflow.keras_file"),
        ("jax", "openvino", "openvino.keras_file"),
        ("jax", "tensorflow", "tensorflow.exported_keras"),
    ],
)
def test_engine_of_a_model_leaves_the_servers_backend(
    tmp_path, opened, server, own, module
):
    """Keras has one backend in a process, whatever a model's basket.toml says."""
    (tmp_path / "model.keras").touch()
    backend = "jax" if server == "jax" else "tensorflow"
    engines.open_engine(tmp_path, replace(Settings(engine=server), engine=own))
    assert opened == [(f"app.engines.{module}", tmp_path / "model.keras", backend)]


@pytest.mark.parametrize("server", ["tensorflow", "openvino"])
def test_jax_beside_keras_on_tensorflow_is_a_load_error(tmp_path, opened, server):
    """The error says how one server can have both."""
    (tmp_path / "model.keras").touch()
    with pytest.raises(ModelLoadError, match=r"start the server with BASKET_ENGINE=ja"):
        engines.open_engine(tmp_path, replace(Settings(engine=server), engine="jax"))
    assert opened == []


@pytest.mark.parametrize(
    ("engine", "backend"),
    [("tensorflow", "tensorflow"), ("openvino", "tensorflow"), ("jax", "jax")],
)
def test_saved_model_ignores_the_engine_setting(
    tmp_path, opened, monkeypatch, engine, backend
):
    """A SavedModel runs on TensorFlow; the Keras backend is set before its import."""
    monkeypatch.setenv("KERAS_BACKEND", "numpy")
    file = tmp_path / "saved_model.pb"
    file.touch()
    engines.open_engine(tmp_path, Settings(engine=engine))
    assert opened == [("app.engines.tensorflow.saved_model", file, backend)]


def test_simulated_model_is_opened_by_its_module(tmp_path):
    """The selected module exists and opens the file."""
    (tmp_path / "simulated.json").write_text("{}")
    engine = engines.open_engine(tmp_path, Settings())
    assert isinstance(engine, SimulatedEngine)


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["model.bin", "a"], "a, model.bin"),
        (["model.keras/"], "model.keras"),
        (list("fedcba"), "a, b, c, d, e, ..."),
    ],
)
def test_folder_without_model_file_is_a_load_error(tmp_path, opened, names, shown):
    """The error lists what the folder holds and which files are supported."""
    folder = tmp_path / "3"
    folder.mkdir()
    for name in names:
        make_entry(folder / name, name)
    with pytest.raises(ModelLoadError) as raised:
        engines.open_engine(folder, Settings())
    assert str(raised.value) == (
        f"version 3 holds {shown}; expected one of: model.keras, model.h5, "
        "model.hdf5, saved_model.pb, model.tflite, model.onnx, simulated.json, "
        "tensorflow_serving.json, service.py"
    )
    assert opened == []


def test_unreadable_folder_or_file_is_retryable(tmp_path, opened, monkeypatch):
    """The error has the name, the reason and the server's uid, and allows a retry."""
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


@pytest.mark.parametrize("engine", ["tensorflow", "jax", "openvino"])
def test_missing_engine_package_stops_the_start(monkeypatch, engine):
    """The settings error names the requirements file to install."""
    others = engine != "tensorflow"
    file = f"requirements/{engine}.txt" if others else "requirements.txt"
    monkeypatch.setattr(checks, "find_spec", lambda _: None)
    with pytest.raises(SettingsError) as raised:
        Settings.from_environment({"BASKET_ENGINE": engine})
    assert str(raised.value) == (
        f"BASKET_ENGINE='{engine}': {engine} is not installed: "
        f"pip install --require-hashes -r {file}"
    )
    assert (Path(__file__).parents[3] / file).is_file()


@pytest.mark.parametrize(
    ("file", "package", "requirements"),
    [
        ("model.tflite", "ai_edge_litert", "requirements/litert.txt"),
        ("model.onnx", "onnxruntime", "requirements/onnx.txt"),
        ("saved_model.pb", "tensorflow", "requirements.txt"),
    ],
)
def test_missing_framework_of_a_file_is_a_load_error(
    tmp_path, monkeypatch, file, package, requirements
):
    """The text has the command that installs it; other models are served."""

    def is_missing(_):
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)

    monkeypatch.setattr(engines, "import_module", is_missing)
    (tmp_path / file).touch()
    with pytest.raises(ModelLoadError) as raised:
        engines.open_engine(tmp_path, Settings())
    assert str(raised.value) == (
        f"{file} needs {package}, which is not installed: "
        f"pip install --require-hashes -r {requirements}"
    )
    assert (Path(__file__).parents[3] / requirements).is_file()


@pytest.mark.parametrize("engine", ["tensorflow", "jax", "openvino"])
def test_installed_engine_package_is_accepted(monkeypatch, engine):
    """An engine whose package is installed may be set."""
    monkeypatch.setattr(checks, "find_spec", lambda name: name)
    assert checks.engine(engine) == engine
