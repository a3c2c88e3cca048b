"""What of a Keras 2 file tf_keras may read: it runs the code that a file names."""

import pytest

from app.engines.keras.custom_code import code_run_by_keras2


def _layer(kind, **more):
    return {"class_name": kind, "config": {"name": "a"}, **more}


def _op(function):
    return {"class_name": "TFOpLambda", "config": {"function": function}}


@pytest.mark.parametrize(
    "layer",
    [
        _layer("LSTM"),
        _layer("LSTM", module="keras.layers"),
        _layer("Functional", module="tf_keras.src.engine.functional"),
        _layer("Mine"),
        {"class_name": "function", "module": "builtins", "config": "relu6"},
        _layer("Constant", module="tensorflow.python.ops.init_ops_v2"),
        _op("math.truediv"),
        _op("compat.v1.transpose"),
        _op("concat"),
    ],
)
def test_layers_and_operations_are_no_code(layer):
    """Models of Keras's layers, and of functions that compute, are read."""
    assert code_run_by_keras2({"layers": [layer]}) == ""


@pytest.mark.parametrize(
    ("layer", "name"),
    [
        (_layer("Lambda"), "a Python lambda"),
        ({"class_name": "__lambda__", "config": {}}, "a Python lambda"),
        ({"class_name": "function", "module": "os", "config": "system"}, "system"),
        ({"class_name": "function", "module": "builtins", "config": "exec"}, "exec"),
        (_layer("Popen", module="subprocess"), "Popen"),
        (_layer("get_file", module="keras.utils"), "get_file"),
        (_layer("load_model", module="keras.models"), "load_model"),
        (_op("load_library"), "a call of load_library"),
        (_op("io.gfile.rmtree"), "a call of io.gfile.rmtree"),
        (_op("compat.v1.py_func"), "a call of compat.v1.py_func"),
    ],
)
def test_code_of_others_is_named(layer, name):
    """Code is found at any depth, before anything of it could run."""
    wrapped = _layer("TimeDistributed") | {"config": {"layer": layer}}
    found = code_run_by_keras2({"layers": [_layer("Dense"), wrapped]})
    assert found.startswith(f"{name} is code of yours, which is not run here: ")
