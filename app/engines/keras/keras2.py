"""Configurations of models that Keras 2 wrote, as Keras 3 reads them.

Only what computes the same is changed. All else stays as it is, so that Keras 3 refuses
it; `flask --app wsgi models convert` runs that.
"""

import inspect
from collections.abc import Collection, Mapping
from typing import Any

import keras

from app.engines.keras.keras2_allowed import LAYERS

_Config = dict[str, Any]

_MODELS = ("Functional", "Model", "Sequential")
# Names of classes in files of TensorFlow 1.13 to 2.0.
_RENAMED = {
    "BatchNormalizationV1": "BatchNormalization",
    "BatchNormalizationV2": "BatchNormalization",
}
# Keras 2's own classes that Keras 3 lacks; its RandomCrop computes something else.
ONLY_KERAS2 = (
    "ClassMethod",
    "CuDNNGRU",
    "CuDNNLSTM",
    "DenseFeatures",
    "InstanceMethod",
    "InstanceProperty",
    "LocallyConnected1D",
    "LocallyConnected2D",
    "RandomCrop",
    "RandomFourierFeatures",
    "RandomHeight",
    "RandomWidth",
    "SlicingOpLambda",
    "SyncBatchNormalization",
    "TFOpLambda",
    "TensorFlowOpLayer",
    "ThresholdedReLU",
)
# Arguments that a layer of Keras 3 may lack, and the values with which a layer of Keras
# 2 computes the same as without them.
_DEFAULTS = {
    "groups": 1,
    "noise_shape": None,
    "softmax_robust_masking": False,
    "time_major": False,
}
# Arguments that a layer of Keras 3 may lack, and that change no answer.
_NO_EFFECT = ("key_shape", "query_shape", "rng_type", "trainable", "value_shape")
# Ends of arguments for training: a loaded model has the weights of its file.
_TRAINING = ("_constraint", "_initializer", "_regularizer")
_RECURRENT = ("Bidirectional", "GRU", "LSTM", "RNN", "SimpleRNN")


@keras.saving.register_keras_serializable("basket")  # type: ignore[untyped-decorator]
def keras2_hard_sigmoid(x: Any) -> Any:
    """Return the hard sigmoid of Keras 2; that of Keras 3 is another function."""
    return keras.ops.clip(0.2 * x + 0.5, 0.0, 1.0)


_HARD_SIGMOID = {
    "module": "builtins",
    "class_name": "function",
    "config": "keras2_hard_sigmoid",
    "registered_name": "basket>keras2_hard_sigmoid",
}


def as_keras3(config: _Config) -> _Config:
    """Return a model's or a layer's configuration for `deserialize_keras_object`.

    Classes of `keras.saving.custom_object_scope` come before Keras's own.

    Raises:
        TypeError: a class that neither Keras nor the scope has, in Keras's words.
        ValueError: a Python lambda, also in Keras's; or a layer with other weights.
    """
    name = str(config["class_name"])
    name = _RENAMED.get(name, name)
    inner = config["config"]
    found = {**config, "class_name": name, "registered_name": None, "module": "keras"}
    # Not those of Keras 3 alone, which load other files.
    layer = getattr(keras.layers, name, None) if name in LAYERS else None
    registered = config.get("registered_name") or name
    if keras.saving.get_registered_object(registered) is not None:
        inner = {key: inner[key] for key in inner if key != "batch_input_shape"}
        found |= {"module": None, "registered_name": registered, "config": inner}
    elif name == "Sequential":
        found["config"] = _sequential(inner)
    elif name in _MODELS:
        found |= {"class_name": "Model", "config": _functional(inner)}
    elif name == "Lambda":
        raise ValueError("Python lambda")
    elif name in ONLY_KERAS2:
        found |= {"module": None, "registered_name": name}
    elif layer is not None:
        found |= {"module": "keras.layers", "config": _layer(layer, inner)}
        # Calls build it. Layers of Keras 2 note other shapes.
        found.pop("build_config", None)
    else:
        raise TypeError(f"Unknown layer: {registered!r}")
    return found


def check_order(model: Any, config: _Config) -> None:
    """Check that a model's layers are in the order of its configuration.

    Files have the weights in that order, and Keras assigns them by it.

    Raises:
        ValueError: they are not.
    """
    if config["class_name"] not in _MODELS:
        return
    layers = config["config"]["layers"]
    # A sequential model does not list its input.
    kept = [each for each in layers if each["class_name"] != "InputLayer"]
    found = [each for each in model.layers if type(each).__name__ != "InputLayer"]
    if [each.name for each in found] != [each["config"]["name"] for each in kept]:
        raise ValueError("its layers are in another order")
    for layer, inner in zip(found, kept, strict=True):
        check_order(layer, inner)


def _layer(layer: type, config: _Config) -> _Config:
    """Return the arguments of one of Keras's layers."""
    parameters = inspect.signature(layer).parameters
    kinds = {each.kind for each in parameters.values()}
    found = {}
    for key, value in config.items():
        is_default = key in _DEFAULTS and value == _DEFAULTS[key]
        # That of all layers decides about the order of weights in HDF5.
        is_used = key == "trainable" and inspect.Parameter.VAR_KEYWORD in kinds
        is_vain = is_default or (key in _NO_EFFECT and not is_used)
        if key.endswith(_TRAINING) or (is_vain and key not in parameters):
            continue
        found[key] = _argument(key, value)
    if layer is keras.layers.Discretization:
        # That of its answers. Keras 3 has it cast the inputs, in graphs only.
        found.pop("dtype", None)
        if not found.get("bin_boundaries"):
            raise ValueError("Discretization: its boundaries are among the weights")
    shape = found.pop("batch_input_shape", None)
    if layer is keras.layers.InputLayer and shape is not None:
        found["batch_shape"] = shape
    if "reset_after" in parameters:
        # Keras before 2.1.3 had no such argument, and computed so.
        found.setdefault("reset_after", False)
    return found


def _argument(key: str, value: Any) -> Any:
    if key == "axis" and isinstance(value, list) and len(value) == 1:
        return value[0]
    if key.endswith("activation") and value == "hard_sigmoid":
        return _HARD_SIGMOID
    if isinstance(value, list):
        return [_argument("", each) for each in value]
    if not isinstance(value, Mapping) or "class_name" not in value:
        return value
    if key == "dtype":  # a policy
        return value["config"]["name"]
    name = value["class_name"]
    # A wrapped layer, or a cell; others are functions and values.
    is_layer = hasattr(keras.layers, name) or name in _MODELS or "module" not in value
    return as_keras3(dict(value)) if is_layer and name[0] != "_" else value


def _sequential(config: Any) -> _Config:
    # Before Keras 2.2.3 it was a list of layers.
    config = {"layers": config} if isinstance(config, list) else config
    layers = [as_keras3(each) for each in config["layers"]]
    first = config["layers"][0]["config"] if layers else {}
    shape = first.get("batch_input_shape") if isinstance(first, Mapping) else None
    if shape is not None and layers[0]["class_name"] != "InputLayer":
        given = {
            "batch_input_shape": shape,
            "dtype": layers[0]["config"].get("dtype") or "float32",
            "name": f"{first['name']}_input",
        }
        layers.insert(0, as_keras3({"class_name": "InputLayer", "config": given}))
    return {"name": "sequential", **config, "layers": layers}


def _functional(config: _Config) -> _Config:
    calls = _Calls(config["layers"])
    return {
        **config,
        "layers": [
            {
                **calls.named(as_keras3(each)),
                "inbound_nodes": [
                    calls.call(each, node) for node in each["inbound_nodes"]
                ],
            }
            for each in config["layers"]
        ],
        "input_layers": calls.places(config["input_layers"]),
        "output_layers": calls.places(config["output_layers"]),
    }


class _Calls:
    """The calls of layers in a functional model."""

    def __init__(self, layers: Collection[_Config]) -> None:
        # Keras 2 counts the calls of a model that has an input from 1.
        self._first = {each["name"]: int(_has_input(each)) for each in layers}
        # So does Keras 3 where these are outputs of the whole.
        self._functional = {
            each["name"]
            for each in layers
            if each["class_name"] in _MODELS and each["class_name"] != "Sequential"
        }

    def named(self, layer: _Config) -> _Config:
        """Return a layer of `layers` under a name that Keras 3 takes."""
        name = _valid(layer["name"])
        return {**layer, "name": name, "config": {**layer["config"], "name": name}}

    def places(self, value: Any) -> Any:
        """Return the places of the whole model's inputs or outputs."""
        if isinstance(value, Mapping):
            return {key: self.places(each) for key, each in value.items()}
        if not _is_place(value):
            found = [self.places(each) for each in value]
            # Keras 2 takes a list of one for the tensor itself.
            return found if len(found) > 1 else found[0]
        name, call, tensor = value[:3]
        first = 0 if name in self._functional else self._first[name]
        return [_valid(name), call - first, tensor]

    def call(self, layer: _Config, node: Any) -> _Config:
        """Return the arguments of one call, with tensors in place of their places."""
        options: _Config = {}
        given = self._tensors(node, options)
        if isinstance(given, list) and len(given) == 1:
            given = given[0]
        named = {key: self._tensors(each, {}) for key, each in options.items()}
        if layer["class_name"] in _RECURRENT:
            if named.get("constants", ()) is None:
                del named["constants"]
            if isinstance(given, list):
                given, *named["initial_state"] = given
        return {"args": [given], "kwargs": named}

    def _tensors(self, value: Any, options: _Config) -> Any:
        """Return the tensors of places; add the arguments beside them to `options`."""
        if isinstance(value, Mapping):
            kind = value.get("class_name")
            # Tensors and other values; a layer is no argument of a call.
            if kind is not None and not str(kind).startswith("__"):
                raise TypeError(f"Unknown object: {kind!r}")
            return {key: self._tensors(each, options) for key, each in value.items()}
        if not isinstance(value, list):
            return value
        if not _is_place(value) or value[0] not in self._first:
            return [self._tensors(each, options) for each in value]
        name, call, tensor = value[:3]
        options.update(*value[3:])
        place = [_valid(name), call - self._first[name], tensor]
        config = {"shape": [], "dtype": "float32", "keras_history": place}
        return {"class_name": "__keras_tensor__", "config": config}


def _valid(name: str) -> str:
    return name.replace("/", "_")


def _has_input(layer: _Config) -> bool:
    if layer["class_name"] != "Sequential":
        return layer["class_name"] in _MODELS
    first = _sequential(layer["config"])["layers"][:1]
    return [each["class_name"] for each in first] == ["InputLayer"]


def _is_place(value: Any) -> bool:
    """Return whether a value is [layer, number of its call, number of its output]."""
    return (
        isinstance(value, list)
        and len(value) in (3, 4)
        and isinstance(value[0], str)
        and all(isinstance(each, int) for each in value[1:3])
    )
