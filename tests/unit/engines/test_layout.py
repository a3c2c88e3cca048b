"""Wrong layouts of real folders: each text, and what its command makes of them."""

import re
import subprocess
from pathlib import Path

import pytest

from app.engines import open_engine
from app.engines.layout import Layout
from app.errors import ModelLoadError, SettingsError
from app.repository.scan import read_folder, scan
from app.settings import Settings
from app.settings.model_files import model_file
from app.settings.model_source import find_model
from tests.support import documents


@pytest.fixture(autouse=True)
def _in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("models").mkdir()


def _write(*paths):
    """Write files, and folders whose names end with a slash."""
    for path in paths:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).mkdir() if path.endswith("/") else Path(path).touch()


def _obey(text):
    """Run the command in a text as a shell does."""
    (command,) = re.findall("`(.*)`", text)
    subprocess.run(["sh", "-ec", command], check=True)


def _warnings(folder="models"):
    models = scan(Path(folder), Settings(model_dir=Path(folder)))
    return {name: list(model.warnings) for name, model in models.items()}


def _strays():
    return list(Layout(Settings()).stray_files())


def _load_error(version):
    with pytest.raises(ModelLoadError) as raised:
        open_engine(Path(version), Settings())
    return str(raised.value)


@pytest.mark.parametrize(
    ("files", "text", "mended"),
    [
        pytest.param(
            ["models/a/model.keras"],
            "model.keras is in no version folder: "
            "`mkdir models/a/1 && mv models/a/model.keras models/a/1/`",
            "models/a/1/model.keras",
            id="no version folder",
        ),
        pytest.param(
            ["models/a/my.h5"],
            "my.h5 is in no version folder: "
            "`mkdir models/a/1 && mv models/a/my.h5 models/a/1/model.h5`",
            "models/a/1/model.h5",
            id="no version folder, own name",
        ),
        pytest.param(
            [
                *("models/a/saved_model.pb", "models/a/variables/variables.index"),
                *("models/a/fingerprint.pb", "models/a/4/model.h5"),
            ],
            "saved_model.pb is in no version folder: `mkdir models/a/5 && mv "
            "models/a/saved_model.pb models/a/variables models/a/fingerprint.pb "
            "models/a/5/`",
            "models/a/5/variables/variables.index",
            id="SavedModel beside a version",
        ),
        pytest.param(
            ["models/a/model.keras", "models/a/service.py"],
            "model.keras is in no version folder: `mkdir models/a/1 && "
            "mv models/a/model.keras models/a/service.py models/a/1/`",
            "models/a/1/service.py",
            id="model with its code",
        ),
        pytest.param(
            ["models/a/service.py", "models/a/3/model.keras"],
            "service.py is in no version folder: `mv models/a/service.py models/a/3/`",
            "models/a/3/service.py",
            id="code beside its version",
        ),
        pytest.param(
            ["models/a/v1/model.keras"],
            "v1 holds model.keras and is no version, whose name is a number: "
            "`mv models/a/v1 models/a/1`",
            "models/a/1/model.keras",
            id="v1",
        ),
        pytest.param(
            ["models/a/v1/my.keras", "models/a/1/model.keras"],
            "v1 holds my.keras and is no version, whose name is a number: "
            "`mv models/a/v1 models/a/2`",
            "models/a/2/my.keras",
            id="v1 beside 1",
        ),
        pytest.param(
            ["models/a/my_export/saved_model.pb"],
            "my_export holds saved_model.pb and is no version, whose name is a number: "
            "`mv models/a/my_export models/a/1`",
            "models/a/1/saved_model.pb",
            id="export in place of a version",
        ),
        pytest.param(
            ["models/my model's/it.keras"],
            "it.keras is in no version folder: `mkdir 'models/my model'\"'\"'s/1' && "
            "mv 'models/my model'\"'\"'s/it.keras' "
            "'models/my model'\"'\"'s/1/model.keras'`",
            "models/my model's/1/model.keras",
            id="quoted",
        ),
        pytest.param(
            ["models/a/"],
            "has no version folder: `mkdir models/a/1`, and save its model as "
            "models/a/1/model.keras",
            "models/a/1",
            id="empty",
        ),
    ],
)
def test_misplaced_model_is_a_warning_with_a_command(files, text, mended):
    """The command moves the model to where it is loaded."""
    _write(*files)
    ((warning,),) = _warnings().values()
    assert warning == text
    _obey(warning)
    assert Path(mended).exists()
    # An empty version is the next problem, which is its engine's.
    assert list(_warnings().values()) == [[]]


def test_each_misplaced_model_gets_a_number_of_its_own():
    """The commands do not overwrite each other's models."""
    _write("models/a/v1/model.keras", "models/a/one.keras", "models/a/old/model.h5")
    (warnings,) = _warnings().values()
    for warning in warnings:
        _obey(warning)
    (model,) = scan(Path("models"), Settings()).values()
    assert sorted(model.versions) == [1, 2, 3]
    assert all(model_file(version) for version in model.versions.values())


def test_misplaced_model_beside_the_last_version_gets_a_free_number():
    """No number is above that of the last version, nor is a longer name one."""
    _write(f"models/a/{2**63 - 1}/model.keras", f"models/a/{2**63}/model.keras")
    ((warning,),) = _warnings().values()
    assert warning == (
        f"{2**63} holds model.keras and is no version, whose name is a number up to "
        f"{2**63 - 1}: `mv models/a/{2**63} models/a/1`"
    )


@pytest.mark.parametrize(
    "files",
    [
        ["models/a/1/model.keras", "models/a/weights.h5"],
        ["models/a/1/model.keras", "models/a/.2/model.h5", "models/a/_2/model.h5"],
        ["models/a/1/model.keras", "models/a/src/a.py", "models/a/classes.json"],
    ],
    ids=["weights beside a version", "hidden", "other files"],
)
def test_other_files_of_a_model_are_no_warning(files):
    """Nothing says that they are versions."""
    _write(*files)
    assert _warnings() == {"a": []}


@pytest.mark.parametrize(
    ("files", "text", "mended"),
    [
        pytest.param(
            ["models/a/1/my.keras"],
            "version 1 holds my.keras; expected the name model.keras: "
            "`mv models/a/1/my.keras models/a/1/model.keras`",
            "models/a/1/model.keras",
            id="own name",
        ),
        pytest.param(
            ["models/a/1/my_export/saved_model.pb", "models/a/1/my_export/assets/"],
            "version 1 holds its model one folder deeper, in my_export: "
            "`mv models/a/1/my_export/* models/a/1/`",
            "models/a/1/saved_model.pb",
            id="nested",
        ),
    ],
)
def test_wrong_file_in_a_version_is_a_load_error_with_a_command(files, text, mended):
    """The command makes it a version that an engine opens."""
    _write(*files)
    error = _load_error("models/a/1")
    assert error == text
    _obey(error)
    assert Path(mended).exists()


@pytest.mark.parametrize("files", [["models/a/1/"], ["models/a/1/.DS_Store"]])
def test_empty_version_is_a_load_error(files):
    """The text names the file to write."""
    _write(*files)
    text = "version 1 is empty: save its model as models/a/1/model.keras"
    assert _load_error("models/a/1") == text


# Files that no engine opens, and the beginning of what is said of them.
OTHER_FILES = [
    (
        "frozen_inference_graph.pb",
        "is a graph without the signatures of a SavedModel: ",
    ),
    (
        "iris.joblib",
        "is a Python pickle, which is not opened: save a Keras model with ",
    ),
    ("model.pkl", "is a Python pickle, which is not opened: save a Keras model with "),
    ("resnet.pt", "is a PyTorch file: write model.onnx with torch.onnx.export, or "),
    ("resnet.pth", "is a PyTorch file: write model.onnx with torch.onnx.export, or "),
    ("model.safetensors", "holds weights without a model: write model.onnx where its "),
    ("my.weights.h5", "is named as weights without a model: save the whole model "),
    ("model.json", "is a model of TensorFlow.js: convert it back with tensorflowjs_"),
]


@pytest.mark.parametrize(("name", "text"), OTHER_FILES)
def test_file_that_no_engine_opens_is_refused_with_the_next_step(name, text):
    """In a version, in a model's folder, and straight in the folder of models."""
    _write(f"models/a/1/{name}", "models/a/1/group1-shard1of1.bin")
    assert _load_error("models/a/1").startswith(f"version 1 holds {name}, which {text}")
    _write(f"models/b/{name}", f"models/{name}")
    _write("models/old.pkl/1/model.keras", f"models/.{name}")
    (misplaced,) = _warnings()["b"]
    (stray,) = _strays()
    assert misplaced == stray
    assert stray.startswith(f"{name} {text}")


@pytest.mark.parametrize(("name", "text"), OTHER_FILES)
def test_single_file_that_no_engine_opens_stops_the_start(name, text):
    """As BASKET_MODEL, and as the only file of its folder."""
    _write(f"a/{name}", "a/README.md")
    paths = {f"a/{name}": f"it {text}", "a": f"{name} {text}"}
    if name == "my.weights.h5":
        # Its reader tells whether it is a whole model.
        assert find_model(Path(f"a/{name}")).version == Path(f"a/{name}").absolute()
        del paths[f"a/{name}"]
    for path, what in paths.items():
        with pytest.raises(SettingsError) as raised:
            find_model(Path(path))
        assert str(raised.value).startswith(what)


def test_version_with_several_keras_files_has_no_command():
    """Nobody can tell which one is the model."""
    _write("models/a/1/one.keras", "models/a/1/two.keras")
    assert _load_error("models/a/1") == (
        "version 1 holds one.keras, two.keras; expected one of: model.keras, model.h5, "
        "model.hdf5, saved_model.pb, model.tflite, model.onnx, simulated.json, "
        "tensorflow_serving.json, service.py"
    )


def test_file_straight_in_the_folder_of_models_is_no_model():
    """It can be served alone, or moved."""
    _write("models/my net.keras", "models/a/1/model.keras", "models/.b.keras")
    (text,) = _strays()
    assert text == (
        "my net.keras is in no folder: serve it alone with "
        "BASKET_MODEL='models/my net.keras', or `mkdir -p 'models/my net/1' && "
        "mv 'models/my net.keras' 'models/my net/1/model.keras'`"
    )
    assert list(_warnings()) == ["a"]
    _obey(text)
    assert _warnings() == {"a": [], "my net": []}
    assert _strays() == []


def test_saved_model_as_the_folder_of_models_is_no_model(tmp_path):
    """Its folders are none, either."""
    _write("models/saved_model.pb", "models/variables/variables.index")
    assert _warnings() == {}
    assert _strays() == [
        "saved_model.pb is in no folder: serve it with BASKET_MODEL=models"
    ]
    (text,) = Layout(Settings(model_dir=tmp_path / "models")).stray_files()
    assert text.endswith("BASKET_MODEL=$BASKET_MODEL_DIR")


def test_model_as_the_folder_of_models_is_a_warning():
    """It is served with another setting."""
    _write("models/1/model.keras")
    assert _warnings() == {
        "1": [
            "holds model.keras, so BASKET_MODEL_DIR looks like one model: serve it "
            "with BASKET_MODEL=models"
        ]
    }


@pytest.mark.parametrize(
    ("folder", "variable"),
    [("models", "$BASKET_MODEL_DIR"), ("my models", '"$BASKET_MODEL_DIR"')],
)
def test_absolute_path_is_not_shown(tmp_path, monkeypatch, folder, variable):
    """Clients see the texts; the operator's shell may know the variable."""
    folder = tmp_path / folder
    _write(f"{folder}/a b/model.keras", f"{folder}/my.keras", f"{folder}/c/1/my.keras")
    settings = Settings(model_dir=folder)
    (stray,) = Layout(settings).stray_files()
    assert f"BASKET_MODEL={variable}/my.keras, or `mkdir -p {variable}/my/1" in stray
    ((warning,), _) = _warnings(folder).values()
    assert f"`mkdir {variable}/'a b/1' && " in warning
    with pytest.raises(ModelLoadError) as raised:
        open_engine(folder / "c" / "1", settings)
    assert f"`mv {variable}/c/1/my.keras {variable}/c/1/model.k" in str(raised.value)
    assert str(tmp_path) not in f"{stray}{warning}{raised.value}"
    monkeypatch.setenv("BASKET_MODEL_DIR", str(folder))
    for text in (stray, warning, str(raised.value)):
        _obey(text)
    assert _warnings(folder) == {"a b": [], "c": [], "my": []}


def test_version_folders_of_basket_model_have_their_own_variable(tmp_path):
    """An absolute path of that setting is not shown, either."""
    _write("a/v2/model.keras", "a/1/model.keras")
    settings = Settings(model=tmp_path / "a")
    (warning,) = read_folder(tmp_path / "a", "a", settings).warnings
    assert warning.endswith("`mv $BASKET_MODEL/v2 $BASKET_MODEL/2`")
    (warning,) = read_folder(Path("a"), "a", Settings(model=Path("a"))).warnings
    assert warning.endswith("`mv a/v2 a/2`")


def _documented():
    """Return the rows of the page's table: a file in a wrong place, and the command."""
    page = documents.ROOT / "docs" / "models.md"
    rows = [row for row in documents.rows(page) if len(row) == 2]
    cells = [re.match("`(models/.*?)` +`(mkdir.*?|mv.*?)`", " ".join(r)) for r in rows]
    return [each.groups() for each in cells if each]


@pytest.mark.parametrize(("file", "command"), _documented())
def test_documented_command_is_the_one_that_is_shown(file, command):
    """The page has the problem, as the server describes it."""
    _write(file)
    texts = [*_strays(), *(text for all_ in _warnings().values() for text in all_)]
    if not texts:
        texts = [_load_error("models/my/1")]
    assert f"`{command}`" in texts[0]


def test_wrong_places_are_documented():
    """The table above is found."""
    assert len(_documented()) == 5
