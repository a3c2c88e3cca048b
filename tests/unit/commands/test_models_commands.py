"""`models check` and `models export`, without a framework."""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest

from app.commands import check, export
from app.commands.export import docker_command
from app.engines.base import Signature, TensorSpec
from app.errors import ModelLoadError
from tests.support.commands import run_models
from tests.support.engines import Computes

FLOAT32 = np.dtype(np.float32)


@pytest.fixture
def models(tmp_path):
    """The models a, with versions 1 and 2, and b, with none."""
    for version in ("1", "2"):
        folder = tmp_path / "models" / "a" / version
        folder.mkdir(parents=True)
        simulation = {"base_ms": 0, "input_shape": [4], "outputs": int(version)}
        (folder / "simulated.json").write_text(json.dumps(simulation))
    (tmp_path / "models" / "b").mkdir()
    return tmp_path / "models"


@pytest.fixture
def command(models):
    """Run a command of the group `models`; return its exit status and output."""

    def run(*args, **settings):
        return run_models(models, *args, **settings)

    return run


@pytest.fixture
def computing(monkeypatch):
    """Have a function compute the one output of the checked model."""

    def install(compute, dtype=np.float32):
        signature = Signature(
            (TensorSpec("x", np.dtype(dtype), (3,)),),
            (TensorSpec("y", FLOAT32, (3,)),),
        )
        engine = Computes(lambda batch: {"y": compute(batch["x"])}, signature)
        monkeypatch.setattr(check, "open_engine", lambda folder, settings: engine)

    return install


def test_check_shows_signature_sizes_and_times(command):
    """The newest version's signature and times are shown, and the conclusion."""
    status, output = command("check", "a", max_batch_size=4)
    assert status == 0
    assert "loading a version 2 ..." in output
    assert "simulated: 48 bytes of files" in output
    assert "  input  input: float32 (4,)" in output
    assert "  output output: float32 (2,)" in output
    timed = output.partition("ms a row")[2].partition("comparing")[0]
    assert [line.split()[0] for line in timed.splitlines() if line.strip()] == [
        "1",
        "2",
        "4",
    ]
    assert output.endswith("each row's answer is its own: the model may be batched\n")


def test_check_of_a_given_version(command):
    """--version selects a version other than the newest."""
    status, output = command("check", "a", "--version", "1", max_batch_size=2)
    assert status == 0
    assert "loading a version 1 ..." in output
    assert "  output output: float32 (1,)" in output


def test_check_fails_if_rows_depend_on_their_batch(command, computing):
    """The error has the output, the difference, and the setting to write."""
    computing(lambda x: x - x.mean(axis=0))
    status, output = command("check", "a", max_batch_size=8)
    assert status == 1
    (error,) = [line for line in output.splitlines() if line.startswith("Error: ")]
    assert error.startswith(
        "Error: serving_default: its rows depend on each other: a row's y differs by "
    )
    assert "more than 0.0001. To have it batched" in error
    assert error.endswith("write max_batch_size = 1 into its basket.toml")


def test_check_passes_with_max_batch_size_one(command, computing, models):
    """With max_batch_size = 1 in basket.toml, the same model passes."""
    computing(lambda x: x - x.mean(axis=0))
    (models / "a" / "basket.toml").write_text("max_batch_size = 1")
    status, output = command("check", "a", max_batch_size=8)
    assert status == 0
    assert output.endswith("It does no harm as max_batch_size is 1\n")


def test_check_tolerance_option(command, computing):
    """A difference of 0.001 passes only with a tolerance of 0.01."""
    computing(lambda x: x + 0.001 * (x != x[:1]).any())
    assert command("check", "a", max_batch_size=8)[0] == 1
    assert command("check", "a", "--tolerance", "0.01", max_batch_size=8)[0] == 0


def test_check_fails_if_the_model_raises_on_several_rows(command, computing):
    """The error of a model that accepts single rows only is the reason."""

    def compute(x):
        if len(x) > 1:
            raise ValueError("one row, please")
        return x

    computing(compute)
    status, output = command("check", "a", max_batch_size=8)
    assert status == 1
    assert (
        "serving_default fails on several rows: ValueError: one row, please" in output
    )


def test_check_fails_if_no_signature_can_be_compared(command, computing):
    """A model that refuses all random rows is shown, but does not pass."""

    def compute(x):
        raise ValueError("could not parse")

    computing(compute, object)
    status, output = command("check", "a")
    assert status == 1
    assert "  input  x: string (3,)" in output
    assert (
        "not compared: the model refuses random rows: ValueError: could not" in output
    )
    assert output.endswith("Error: no signature could be compared\n")


def test_check_notes_equal_outputs_for_all_rows(command, computing):
    """A model that returns zeros for everything passes, with a note."""
    computing(lambda x: x * 0)
    status, output = command("check", "a", max_batch_size=8)
    assert status == 0
    assert "note: all random rows get one answer, so this tells little" in output


def test_check_stops_timing_at_out_of_memory(command, models):
    """Rows are compared in the largest batch that fits into memory."""
    simulation = {"base_ms": 0, "input_shape": [4], "outputs": 1, "memory_rows": 5}
    (models / "a" / "2" / "simulated.json").write_text(json.dumps(simulation))
    status, output = command("check", "a", max_batch_size=64)
    assert status == 0
    assert "a batch of 8 rows does not fit" in output
    assert "in batches of 4 ..." in output


@pytest.mark.parametrize("name", ["check", "export"])
@pytest.mark.parametrize(
    ("args", "error"),
    [
        (["c"], "no model 'c'; there are: a, b"),
        (["../models/a"], "no model '../models/a'; there are: a, b"),
        (["b"], "model 'b' has no version; it has: none"),
        (["a", "--version", "7"], "model 'a' has no version 7; it has: 1, 2"),
    ],
)
def test_unknown_model_or_version_is_one_line(command, name, args, error):
    """The error lists the existing models or versions."""
    assert command(name, *args) == (1, f"Error: {error}\n")


@pytest.mark.parametrize("name", ["check", "export"])
def test_invalid_basket_toml_is_one_line(command, models, name):
    """A basket.toml that can't be read is an error of one line."""
    (models / "a" / "basket.toml").write_text("max_batch_size = 0")
    status, output = command(name, "a")
    assert status == 1
    assert output.startswith("Error: basket.toml: max_batch_size")
    assert len(output.splitlines()) == 1


def test_check_shows_a_load_error_as_one_line(command, models):
    """An engine's error about its file is one line."""
    (models / "a" / "2" / "simulated.json").write_text("{")
    status, output = command("check", "a")
    assert status == 1
    assert output.splitlines()[-1].startswith("Error: simulated.json: ")


def test_export_refuses_a_version_without_a_keras_file(command, tmp_path):
    """The error names the supported files, and nothing is written."""
    status, output = command("export", "a", "--output", str(tmp_path / "out"))
    assert status == 1
    assert output == (
        "Error: version 2 holds no model.keras, model.h5 or model.hdf5: only Keras "
        "files are exported\n"
    )
    assert not (tmp_path / "out").exists()


def test_commands_find_the_model_of_basket_model(command, models, monkeypatch):
    """It is version 1 of a model with its name, and no place for a second one."""
    settings = {"model": models / "a" / "2", "model_name": "shop"}
    status, output = command("check", "shop", **settings)
    assert status == 1
    text = "Error: model 'shop' is being written: try again in a second\n"
    assert output == text
    monkeypatch.setattr("app.repository.single_model._COMPLETE_AFTER_S", 0)
    status, output = command("check", "shop", max_batch_size=1, **settings)
    assert status == 0, output
    assert output.startswith("loading shop version 1 ...")
    file = models / "my.keras"
    file.touch()
    status, output = command("quantize", "my", "--int8", model=file)
    assert status == 1
    assert "BASKET_MODEL has no place for another version" in output


@pytest.fixture
def keras_version(models):
    """A version with an empty model.keras."""
    (models / "a" / "2" / "model.keras").touch()
    return models / "a" / "2"


@pytest.mark.parametrize(
    ("args", "good_calls", "error"),
    [
        (("check", "a"), 1, "its EXAMPLE: {} (OSError): OSError: offline (line 8)"),
        (("check", "a"), 9, "its EXAMPLE: {} (OSError): OSError: offline (line 8)"),
        (
            ("plan", "a", "--rate", "1", "--p95-ms", "100"),
            0,
            "its EXAMPLE: {} (OSError): OSError: offline (line 8)",
        ),
    ],
)
def test_example_that_fails_while_it_is_timed_is_one_line(
    command, models, args, good_calls, error
):
    """It may have run before, when the version was opened."""
    (models / "a" / "2" / "service.py").write_text(f"""
EXAMPLE = [1, 2, 3, 4]
calls = []

def preprocess(instance):
    calls.append(instance)
    if len(calls) > {good_calls}:
        raise OSError("offline")
    return instance
""")
    status, output = command(*args, user_code=True, max_batch_size=2)
    assert status == 1
    text = error.format("service.py: preprocess failed on EXAMPLE[0]")
    assert output.splitlines()[-1] == f"Error: {text}"


def test_next_version_after_the_last_number_is_an_error(command, keras_version):
    """Nothing is written that can't be served."""
    last = str(2**63 - 1)
    keras_version.rename(keras_version.with_name(last))
    assert command("quantize", "a", "--int8") == (
        1,
        f"Error: model 'a' has version {last}, the highest number there is: rename "
        "its folder to a lower one\n",
    )
    assert {each.name for each in keras_version.parent.iterdir()} == {"1", last}


@pytest.mark.parametrize(
    ("form", "package"), [("onnx", "tf2onnx"), ("openvino", "openvino")]
)
def test_export_names_a_missing_package(
    command, keras_version, tmp_path, monkeypatch, form, package
):
    """A format whose package is not installed is an error with the pip command."""
    looked_up = []
    monkeypatch.setattr(export, "find_spec", looked_up.append)
    out = tmp_path / "out"
    assert command("export", "a", "--format", form, "--output", str(out)) == (
        1,
        f"Error: --format {form} needs a package that is not here: pip install "
        f"{package}\n",
    )
    assert looked_up == [package]
    assert not out.exists()


def test_export_does_not_overwrite_a_version(command, keras_version, tmp_path):
    """An existing target folder is an error."""
    target = tmp_path / "out" / "a" / "2"
    target.mkdir(parents=True)
    status, output = command("export", "a", "--output", str(tmp_path / "out"))
    assert (status, output) == (1, f"Error: {target} exists already\n")


class Writer:
    """A double for the module that exports; raises `error` after writing a file."""

    error: Exception | None = None
    # Inode of the folder to write to.
    inode: int

    def export(self, file, settings, form, folder):
        assert folder.parent.name.startswith(".")
        folder.mkdir(parents=True)
        self.inode = folder.stat().st_ino
        (folder / "saved_model.pb").write_text(f"{file.name} as {form}")
        if self.error is not None:
            raise self.error


@pytest.fixture
def writer(monkeypatch):
    writer = Writer()
    monkeypatch.setattr(export, "import_module", lambda name: writer)
    return writer


def test_export_appears_only_when_complete(command, keras_version, writer, tmp_path):
    """The exported version is the renamed temporary folder, with nothing beside it."""
    status, output = command("export", "a", "--output", str(tmp_path / "out"))
    target = tmp_path / "out" / "a" / "2"
    assert status == 0
    assert f"written: {target}" in output
    assert docker_command(target.parent, None) in output
    assert (target / "saved_model.pb").read_text() == "model.keras as savedmodel"
    assert target.stat().st_ino == writer.inode
    assert [path.name for path in target.parent.iterdir()] == ["2"]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ModelLoadError("can't be written as savedmodel: why"), "why"),
        (OSError(28, "No space left on device"), "No space left on device"),
    ],
)
def test_failed_export_leaves_nothing(
    command, keras_version, writer, tmp_path, error, text
):
    """A failing export leaves no version and no parent folder."""
    writer.error = error
    status, output = command("export", "a", "--output", str(tmp_path / "out"))
    assert status == 1
    assert output.splitlines()[-1].startswith("Error: ")
    assert output.endswith(f"{text}\n")
    assert [path.name for path in tmp_path.iterdir()] == ["models"]


def test_docker_command_is_quoted_for_a_shell():
    """A shell splits the command as TensorFlow Serving's image expects."""
    words = shlex.split(docker_command(Path("/some where/a"), None).replace("\\\n", ""))
    assert words == [
        *("docker", "run", "--rm", "-p", "8501:8501"),
        *("--mount", "type=bind,source=/some where/a,target=/models/a"),
        *("-e", "MODEL_NAME=a", "tensorflow/serving"),
    ]


def test_docker_command_mounts_the_batching_file(
    command, keras_version, writer, tmp_path
):
    """TensorFlow Serving's batching file is mounted and named."""
    file = tmp_path / "batching.txt"
    file.touch()
    out = str(tmp_path / "out")
    status, output = command(
        "export", "a", "--output", out, "--batching-parameters-file", str(file)
    )
    assert status == 0
    words = shlex.split(output.partition("docker run")[2].replace("\\\n", ""))
    assert f"type=bind,source={file},target=/models/batching.pbtxt" in words
    assert words[-3:] == [
        "tensorflow/serving",
        "--enable_batching",
        "--batching_parameters_file=/models/batching.pbtxt",
    ]
