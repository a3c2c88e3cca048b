"""TFLite and ONNX files: one server for both, without TensorFlow in its processes."""

import io
import json
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from app.engines import open_engine
from app.errors import ModelLoadError, OutOfDeviceMemory, RefusedInput
from app.settings import Settings
from testing.server import ROOT, serving
from testing.tried import runtimes
from testing.tried.saving import Saving
from tests.support.marks import USES_TENSORFLOW

pytestmark = USES_TENSORFLOW
FLOAT = TensorProto.FLOAT


def _write(file, nodes, inputs, outputs, opset=17, **weights):
    """Write an ONNX graph of float tensors; sizes by name."""
    described = [
        [
            helper.make_tensor_value_info(name, FLOAT, sizes)
            for name, sizes in each.items()
        ]
        for each in (inputs, outputs)
    ]
    arrays = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "graph", *described, arrays)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("mine", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), file)
    return file


def _opened(file):
    return open_engine(file, Settings())


def _refusal(file):
    with pytest.raises(ModelLoadError) as raised:
        _opened(file)
    assert str(file.parent) not in str(raised.value)
    return str(raised.value)


@pytest.fixture(scope="module")
def known(keras, tf, tmp_path_factory):
    """Save models in a folder; return what they answer, and the folder."""
    folder = tmp_path_factory.mktemp("models")
    makers = {
        "convolutions": runtimes.tflite_convolutions,
        "tflite_ids": runtimes.tflite_ids,
        "onnx_ids": runtimes.onnx_ids,
    }
    found = {
        name: make(Saving(keras, tf, folder / name / "1"))
        for name, make in makers.items()
    }
    return found, folder


@pytest.fixture(scope="module")
def server(known):
    """Serve them with a model process for two web workers."""
    options = {"model_dir": str(known[1]), "default_model": "convolutions"}
    with serving(
        "--threads=4", "--workers=2", model_process="shared", **options
    ) as running:
        running.wait_until_loaded()
        yield running


def _predict(server, model, instances):
    body = json.dumps({"instances": instances}, default=np.ndarray.tolist).encode()
    return server.request("POST", f"/v1/models/{model}:predict", body)


def test_processes_load_no_tensorflow(server):
    """Neither the model process nor the web workers map its library."""
    maps = [Path(f"/proc/{process}/maps").read_text() for process in server.workers()]
    assert len(maps) >= 2
    assert any("site-packages/onnxruntime/" in each for each in maps)
    assert any("site-packages/ai_edge_litert/" in each for each in maps)
    assert not any("site-packages/tensorflow/" in each for each in maps)


def test_metadata_has_the_platform_and_the_names_of_the_file(server):
    """V2's platform is the runtime and the format, as Triton has it for ONNX."""
    found = server.request("GET", "/v2/models/onnx_ids").json()
    assert found["platform"] == "onnxruntime_onnx"
    assert [each["name"] for each in found["inputs"]] == ["ids"]
    found = server.request("GET", "/v2/models/tflite_ids").json()
    assert found["platform"] == "litert_tflite"
    assert [each["name"] for each in found["inputs"]] == ["ids"]


@pytest.mark.parametrize("model", ["tflite_ids", "onnx_ids"])
def test_bad_row_is_refused_and_those_beside_it_are_answered(server, known, model):
    """An id out of the vocabulary is a 400 for its own request alone."""
    good = known[0][model]
    bad = [99] * len(good.rows[0])
    with ThreadPoolExecutor(12) as pool:
        replies = list(
            pool.map(
                lambda rows: _predict(server, model, rows),
                [[bad] if n % 4 == 0 else [good.rows[n % 5]] for n in range(40)],
            )
        )
    for n, reply in enumerate(replies):
        if n % 4 == 0:
            assert reply.status == 400
            assert "the model refuses this input" in reply.json()["error"]
        else:
            (answer,) = reply.json()["predictions"]
            # Batches of other sizes round small values in another way.
            expected = good.answers[n % 5]
            np.testing.assert_allclose(answer, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("model", ["convolutions", "tflite_ids", "onnx_ids"])
def test_threads_that_run_one_engine_get_their_own_answers(known, model):
    """With batching off, each request's thread runs its row, in any order of sizes."""
    found, folder = known
    engine = _opened(folder / model / "1")
    (spec,) = engine.signatures["serving_default"].inputs
    rows, answers = np.array(found[model].rows, spec.dtype), found[model].answers

    def run(n):
        size = 1 + n % 3
        (output,) = engine.run({spec.name: rows[:size]}).values()
        return np.abs(output - np.array(answers[:size])).max()

    with ThreadPoolExecutor(8) as pool:
        assert max(pool.map(run, range(200))) < 1e-5
    engine.close()
    engine.close()


def test_errors_of_refused_rows_do_not_pile_up(known):
    """LiteRT keeps the text of all errors of an interpreter, and gives it each time."""
    engine = _opened(known[1] / "tflite_ids" / "1")
    lengths = []
    for _ in range(500):
        with pytest.raises(RefusedInput) as raised:
            engine.run({"ids": np.full((1, 2), 99, np.int32)})
        lengths.append(len(str(raised.value.__cause__)))
    assert max(lengths) < 20_000


def test_check_and_single_file_know_both_formats(known, tmp_path):
    """The command times a file of any name, and says that it may be batched."""
    for suffix, model in ((".tflite", "convolutions"), (".onnx", "onnx_ids")):
        file = tmp_path / f"my{suffix}"
        file.symlink_to(known[1] / model / "1" / f"model{suffix}")
        command = [sys.executable, "-m", "flask", "--app", "wsgi", "models", "check"]
        ran = subprocess.run(
            [*command, "my"],
            cwd=ROOT,
            check=False,
            capture_output=True,
            text=True,
            env={"BASKET_MODEL": str(file), "PATH": ""},
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert "each row's answer is its own: the model may be batched" in ran.stdout


def test_row_that_does_not_fit_is_out_of_memory(tmp_path):
    """The allocation of 16 TiB fails, and the next batch runs."""
    engine = _opened(
        _write(
            tmp_path / "model.onnx",
            [
                helper.make_node("Cast", ["x"], ["sizes"], to=TensorProto.INT64),
                helper.make_node("Squeeze", ["sizes"], ["size"]),
                helper.make_node("Unsqueeze", ["size", "zero"], ["shape"]),
                helper.make_node("Expand", ["x", "shape"], ["y"]),
            ],
            {"x": [1, 1]},
            {"y": [1, "n"]},
            zero=np.array([0]),
        )
    )
    with pytest.raises(OutOfDeviceMemory, match="a batch of 1 rows does not fit"):
        engine.run({"x": np.full((1, 1), 2.0**42, np.float32)})
    assert engine.run({"x": np.full((1, 1), 3, np.float32)})["y"].tolist() == [[3] * 3]


def test_overwritten_weights_leave_the_open_model_as_it_is(keras, tf, tmp_path):
    """ONNX Runtime would map the external file; missing, it is named without a path."""
    runtimes.onnx_external(Saving(keras, tf, tmp_path / "1"))
    engine = _opened(tmp_path / "1")
    ids = {"ids": np.arange(6).reshape(3, 2)}
    before = engine.run(ids)["rows"]
    with (tmp_path / "1" / "table.bin").open("r+b") as weights:
        weights.truncate(10)
    assert engine.run(ids)["rows"].tolist() == before.tolist()
    (tmp_path / "1" / "table.bin").unlink()
    file = tmp_path / "1" / "model.onnx"
    assert _refusal(file).startswith("model.onnx lacks table.bin, which has its weig")
    (tmp_path / "1" / "table.bin").write_bytes(bytes(10))
    assert _refusal(file).startswith("table.bin, with 10 bytes, is too short for the ")


def test_onnx_integer_division_by_zero_is_refused(tmp_path):
    """Of the row's values only: it is no failure of the model."""
    values = [
        helper.make_tensor_value_info(name, TensorProto.INT32, ["n", 1])
        for name in "aby"
    ]
    node = helper.make_node("Div", ["a", "b"], ["y"])
    graph = helper.make_graph([node], "graph", values[:2], values[2:])
    opset = [helper.make_opsetid("", 17)]
    onnx.save(
        helper.make_model(graph, opset_imports=opset, ir_version=8),
        tmp_path / "my.onnx",
    )
    ones = np.ones((1, 1), np.int32)
    with pytest.raises(RefusedInput, match="input: Integer division by zero"):
        _opened(tmp_path / "my.onnx").run({"a": ones, "b": 0 * ones})


@pytest.mark.parametrize("operation", ["floordiv", "truncatediv"])
def test_tflite_integer_division_by_zero_is_refused(tf, tmp_path, operation):
    """LiteRT has a text of its own for each operation."""
    specs = [tf.TensorSpec([None, 1], tf.int32, name=name) for name in "ab"]
    divide = tf.function(getattr(tf.math, operation, tf.truncatediv), specs)
    concrete = [divide.get_concrete_function()]
    converter = tf.lite.TFLiteConverter.from_concrete_functions(concrete, divide)
    (tmp_path / "my.tflite").write_bytes(converter.convert())
    engine = _opened(tmp_path / "my.tflite")
    (signature,) = engine.signatures.values()
    zeros = {spec.name: spec.blank(1) for spec in signature.inputs}
    with pytest.raises(RefusedInput, match="input: integer division by zero"):
        engine.run(zeros)


def test_text_that_is_not_utf_8_is_refused(keras, tf, tmp_path):
    """ONNX has text, and no bytes."""
    runtimes.onnx_strings(Saving(keras, tf, tmp_path / "1"))
    engine = _opened(tmp_path / "1")
    with pytest.raises(RefusedInput, match="word holds text that is not UTF-8"):
        engine.run({"word": np.array([[b"\xff", b"a"]], object)})


@pytest.mark.parametrize(
    ("node", "opset", "text"),
    [
        (
            helper.make_node("Twist", ["x"], ["y"], domain="mine"),
            17,
            "it needs mine:Twist, which ONNX Runtime does not have, or not for its ",
        ),
        (
            helper.make_node("BitwiseNot", ["x"], ["y"]),
            18,
            "my.onnx: This is an invalid model. Type Error: Type 'tensor(float)' of ",
        ),
        (
            helper.make_node("Identity", ["x"], ["y"]),
            999,
            "its Opset 999 is newer than this ONNX Runtime: ",
        ),
        (
            helper.make_node("Foo", ["x"], ["y"]),
            17,
            "it needs Foo, which ONNX Runtime ",
        ),
    ],
    ids=["operation", "type", "opset", "unknown"],
)
def test_graph_that_onnx_runtime_can_not_run_is_a_load_error(
    tmp_path, node, opset, text
):
    """The text names what it lacks, and what to do."""
    sizes = {"x": ["n", 2]}, {"y": ["n", 2]}
    file = _write(tmp_path / "my.onnx", [node], *sizes, opset)
    assert _refusal(file).startswith(text)


def test_graph_without_inputs_or_with_no_rows_is_a_load_error(tmp_path):
    """One has nothing to ask, and no row fits the other."""
    ones = helper.make_node("Identity", ["w"], ["y"])
    weights = np.ones((1, 2), np.float32)
    file = _write(tmp_path / "my.onnx", [ones], {}, {"y": [1, 2]}, w=weights)
    assert _refusal(file).startswith("it has no inputs, ")
    sizes = {"x": [0, 2]}, {"y": [0, 2]}
    file = _write(file, [helper.make_node("Relu", ["x"], ["y"])], *sizes)
    assert _refusal(file).startswith("input x has the first dimension 0, ")


def test_complex_input_of_onnx_is_a_load_error(tmp_path):
    """ONNX Runtime has no complex tensors."""
    values = [
        helper.make_tensor_value_info(name, TensorProto.COMPLEX64, ["n"])
        for name in "xy"
    ]
    node = helper.make_node("Identity", ["x"], ["y"])
    graph = helper.make_graph([node], "graph", values[:1], values[1:])
    opset = [helper.make_opsetid("", 17)]
    onnx.save(
        helper.make_model(graph, opset_imports=opset, ir_version=8),
        tmp_path / "my.onnx",
    )
    assert _refusal(tmp_path / "my.onnx").startswith("it has a tensor of complex64, ")


def _zipped(*names):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name in names:
            archive.writestr(name, b"")
    return content.getvalue()


@pytest.mark.parametrize("name", ["my.tflite", "my.onnx"])
@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "is no whole {} file (0 bytes): half copied, or damaged: copy it again"),
        (b"<html>" * 50, "is no whole {} file (300 bytes): half copied, or damaged: "),
        (b"\x80\x04" * 50, "is a Python pickle, which is not opened: "),
        (b"version https://git-lfs.github.com/spec/v1\n", "is a Git LFS pointer: run "),
        (b"\x89HDF\r\n\x1a\n" * 9, "is an HDF5 file: name a Keras model model.h5"),
        (_zipped("metadata.json", "config.json"), "is a Keras file: name it model.ke"),
        (_zipped("m/data.pkl"), "is a PyTorch file: "),
        (_zipped("model.onnx"), "is a zip file: unpack it"),
    ],
    ids=["empty", "damaged", "pickle", "LFS", "HDF5", "Keras", "PyTorch", "zip"],
)
def test_other_content_is_a_load_error(tmp_path, name, content, text):
    """The text says what the file is, and what to do."""
    (tmp_path / name).write_bytes(content)
    suffix = (tmp_path / name).suffix
    assert _refusal(tmp_path / name).startswith(f"{name} {text.format(suffix)}")


def test_file_with_the_name_of_the_other_format_is_a_load_error(tmp_path):
    """TFLite named .onnx, ONNX named .tflite; half of one is no whole file."""
    sizes = {"x": ["n", 2]}, {"y": ["n", 2]}
    graph = _write(
        tmp_path / "a.onnx", [helper.make_node("Relu", ["x"], ["y"])], *sizes
    )
    content = graph.read_bytes()
    (tmp_path / "a.tflite").write_bytes(content)
    assert _refusal(tmp_path / "a.tflite").endswith("an ONNX file: name it model.onnx")
    graph.write_bytes(content[:-5])
    assert "a.onnx is no whole .onnx file" in _refusal(graph)
    graph.write_bytes(b"\x1c\0\0\0TFL3" * 9)
    assert _refusal(graph) == "a.onnx is a TFLite file: name it model.tflite"
    (tmp_path / "a.tflite").write_bytes(b"\x1c\0\0\0TFL3" * 9)
    assert "no whole .tflite file" in _refusal(tmp_path / "a.tflite")
