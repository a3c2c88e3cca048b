"""What of a Keras 2 file tf_keras may read: it runs the code that a file names."""

import pytest

from app.engines.keras.keras2_allowed import not_allowed


def _layer(kind, *, inside=(), **more):
    return {"class_name": kind, "config": {"name": "a", **dict(inside)}, **more}


def _op(function, *arguments, kind="TFOpLambda"):
    node = [["x/y", 0, 0, {"name": "a/b", "axis": -1}], *arguments]
    return _layer(kind, inside={"function": function}, inbound_nodes=node)


@pytest.mark.parametrize(
    "layer",
    [
        _layer("LSTM", inside={"recurrent_activation": "hard_sigmoid"}),
        _layer("LSTM", module="keras.layers", registered_name=None),
        _layer("Functional", module="tf_keras.src.engine.functional"),
        {"class_name": "function", "module": "builtins", "config": "relu6"},
        _layer("Constant", module="tensorflow.python.ops.init_ops_v2"),
        _layer("StringLookup", inside={"vocabulary": ["tea"]}),
        _op("math.truediv"),
        _op("compat.v1.transpose"),
        _op("concat"),
        _op("__operators__.getitem", kind="SlicingOpLambda"),
        _op("strings.join", ["_CONSTANT_VALUE", -1, "a", {"separator": "-"}]),
    ],
)
def test_layers_and_operations_are_allowed(layer):
    """Models of Keras's layers, and of functions that compute, are read."""
    assert not_allowed({"layers": [layer], "compile_config": _layer("Mine")}) == ""


@pytest.mark.parametrize(
    ("layer", "text"),
    [
        (_layer("Lambda"), "a Python lambda is code of yours, which is not run here"),
        ({"class_name": "__lambda__", "config": {}}, "a Python lambda"),
        (
            {"class_name": "function", "module": "os", "config": "system"},
            "'system of module os'",
        ),
        (
            {"class_name": "function", "module": "builtins", "config": "exec"},
            "'function exec'",
        ),
        (
            _layer("Popen", module="subprocess"),
            "'Popen of module subprocess' is not among what tf_keras may load here: "
            'where its code is, write a SavedModel with model.export("models/NAME/',
        ),
        (_layer("get_file", module="keras.utils"), "'get_file of module keras.utils'"),
        (_layer("load_model", module="keras.models"), "'class load_model'"),
        (_layer("Dense", module="keras_hub.layers"), "'Dense of module keras_hub."),
        (_layer("Dense", registered_name="a>Mine"), "'class a>Mine'"),
        (_layer(["Dense"]), "\"class ['Dense']\""),
        ({"module": "os", "config": {}}, "'None of module os'"),
        (_layer("Mine"), "'class Mine'"),
        (_layer("__typespec__", spec_name="a", module="keras"), "'class __typespec__'"),
        (_layer("TensorFlowOpLayer"), "'class TensorFlowOpLayer'"),
        (_layer("ClassMethod", inside={"cls_symbol": "io.gfile.GFile"}), "'class Cla"),
        (_layer("InstanceMethod", inside={"attr_name": "numpy"}), "'class InstanceM"),
        (_layer("InstanceProperty"), "'class InstanceProperty'"),
        (_layer("ResidualWrapper"), "'class ResidualWrapper'"),
        (_layer("DenseFeatures"), "'class DenseFeatures'"),
        (_layer("StringLookup", inside={"vocabulary": "/a/b"}), "'the vocabulary of"),
        (_layer("Dense", inside={"activation": "deserialize"}), "'activation deseri"),
        (_layer("Dense", inside={"bias_initializer": "get"}), "'bias_initializer get"),
        (_op("load_library"), "'a call of load_library'"),
        (_op("io.gfile.rmtree"), "'a call of io.gfile.rmtree'"),
        (_op("compat.v1.py_func"), "'a call of compat.v1.py_func'"),
        (_op("compat.v1.write_file"), "'a call of compat.v1.write_file'"),
        (_op("print"), "'a call of print'"),
        (_op("io.gfile.copy", kind="SlicingOpLambda"), "'a call of io.gfile.copy'"),
        (
            _op("add", ["_CONSTANT_VALUE", -1, "/etc/hosts", {}]),
            "'a call of add with /etc/hosts'",
        ),
    ],
)
def test_everything_else_is_named(layer, text):
    """It is found at any depth, before anything of it could run."""
    wrapped = _layer("TimeDistributed", inside={"layer": layer})
    node = {"class_name": "Add", "config": {}, "inbound_nodes": [[["x", 0, 0, layer]]]}
    for each in (wrapped, node):
        assert not_allowed({"layers": [_layer("Dense"), each]}).startswith(text)
