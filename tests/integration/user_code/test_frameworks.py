"""Models of other frameworks, served by the code that docs/user_code.md shows."""

from importlib import import_module

import joblib
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from testing.server import ROOT
from tests.support.documents import blocks
from tests.support.user_code import add_service, predict, serving_code


def _codes(package):
    """Return the blocks of the page that import a package."""
    return [
        block
        for block in blocks(ROOT / "docs" / "user_code.md", "python")
        if f"import {package}\n" in block
    ]


def _save_onnx(model, file):
    """Write a linear classifier as ONNX: x (rows, 4) to scores (rows, 3)."""
    weights = {
        "w": model.coef_.T.astype(np.float32),
        "b": model.intercept_.astype(np.float32),
    }
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["xw"]),
            helper.make_node("Add", ["xw", "b"], ["scores"]),
        ],
        "iris",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 4])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["rows", 3])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    # What older releases of ONNX Runtime read, too.
    versions = {"opset_imports": [helper.make_opsetid("", 17)], "ir_version": 8}
    onnx.save(helper.make_model(graph, **versions), file)


@pytest.mark.parametrize("mode", ["worker", "shared"])
def test_code_of_the_docs_serves_scikit_learn_and_onnx_runtime(tmp_path, mode):
    """Answers are those of the packages themselves."""
    # Here, as its import takes most of a second, in each process that collects tests.
    datasets = import_module("sklearn.datasets")
    linear_model = import_module("sklearn.linear_model")
    rows, classes = datasets.load_iris(return_X_y=True)
    model = linear_model.LogisticRegression(max_iter=1000).fit(rows, classes)
    (code,) = _codes("joblib")
    iris = add_service(tmp_path, "iris", code)
    joblib.dump(model, iris / "iris.joblib")
    (code,) = _codes("onnxruntime")
    scores = add_service(tmp_path, "scores", code)
    _save_onnx(model, scores / "model.onnx")
    session = onnxruntime.InferenceSession(scores / "model.onnx")
    (expected,) = session.run(None, {"x": rows.astype(np.float32)})
    with serving_code(tmp_path, model_process=mode) as server:
        answer = predict(server, "iris", rows.tolist())
        assert answer == (200, model.predict(rows).tolist())
        status, found = predict(server, "scores", rows.tolist())
    assert status == 200
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_code_of_the_docs_for_pytorch_compiles():
    """PyTorch is not among the development packages, so the code is not run.

    The second is the example of service-streamer.
    """
    alone, moved = _codes("torch")
    for code in (alone, moved):
        compile(code, "service.py", "exec")
    assert "densenet121" in moved
