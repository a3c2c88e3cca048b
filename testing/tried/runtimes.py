"""TFLite and ONNX files, beside the answers of Keras or of the runtime itself."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import flatbuffers
import numpy as np
import onnx
import onnxruntime
from ai_edge_litert.interpreter import Interpreter
from onnx import TensorProto, helper, numpy_helper

from testing.keras_models import small_convolutions
from testing.tried.case import ONNX, TFLITE, tried
from testing.tried.saving import Known, Rows, Saving, by_row, integers, numbers

_SIDE = 16


def _convert(
    saving: Saving, converter: Any, change: Callable[[Any], None] | None = None
) -> None:
    if change is not None:
        change(converter)
    saving.folder.mkdir(parents=True)
    (saving.folder / "model.tflite").write_bytes(converter.convert())


def _from_keras(
    saving: Saving,
    model: Any,
    rows: Rows | None = None,
    change: Callable[[Any], None] | None = None,
) -> Known:
    converter = saving.tf.lite.TFLiteConverter.from_keras_model(model)
    _convert(saving, converter, change)
    return saving.predicted(model, rows)


def _from_function(saving: Saving, function: Any, *specs: Any) -> None:
    module = saving.tf.Module()
    module.call = saving.tf.function(function, input_signature=specs)
    concrete = [module.call.get_concrete_function()]
    _convert(
        saving, saving.tf.lite.TFLiteConverter.from_concrete_functions(concrete, module)
    )


def _litert_answers(saving: Saving, *rows: Mapping[str, Any]) -> list[Any]:
    """Return what LiteRT answers to each row, alone."""
    interpreter = Interpreter(model_path=str(saving.folder / "model.tflite"))
    run = interpreter.get_signature_runner()
    found = [
        run(**{name: np.asarray(value)[None] for name, value in row.items()})
        for row in rows
    ]
    named = [{name: array[0] for name, array in each.items()} for each in found]
    return [next(iter(each.values())) if len(each) == 1 else each for each in named]


@tried("Convolutions of MobileNet's kinds", TFLITE)
def tflite_convolutions(saving: Saving) -> Known:
    model = small_convolutions(saving.keras, _SIDE)
    return _from_keras(saving, model, numbers(5, _SIDE, _SIDE, 3))


@tried("Mean of embedded ids, any length", TFLITE)
def tflite_ids(saving: Saving) -> Known:
    layers = saving.keras.layers
    ids = saving.keras.Input((None,), dtype="int32", name="ids")
    pooled = layers.GlobalAveragePooling1D()(layers.Embedding(50, 4)(ids))
    model = saving.keras.Model(ids, layers.Dense(3)(pooled))
    known = _from_keras(saving, model, integers(50, 5, 7))
    reason = "the model refuses this input: an index is out of bounds"
    return Known(known.rows, known.answers, [[1] * 7, [99] * 7], reason)


@tried("Two inputs, two outputs", TFLITE)
def tflite_several(saving: Saving) -> Known:
    layers = saving.keras.layers
    left = saving.keras.Input((3,), name="left")
    right = saving.keras.Input((2, 2), name="right")
    outputs = {
        "wide": layers.Dense(4)(layers.Flatten()(right)),
        "narrow": layers.Dense(1)(left),
    }
    rows = {"left": numbers(4, 3), "right": numbers(4, 2, 2, seed=1)}
    return _from_keras(saving, saving.keras.Model([left, right], outputs), rows)


@tried("Fixed first dimension 1", TFLITE)
def tflite_fixed(saving: Saving) -> Known:
    spec = saving.tf.TensorSpec([1, 4], name="x")
    _from_function(saving, lambda x: {"y": x * 2 + 1}, spec)
    rows = numbers(3, 4)
    return Known(list(rows), list(rows * 2 + 1))


@tried("Quantized to int8, in and out", TFLITE)
def tflite_int8(saving: Saving) -> Known:
    model = small_convolutions(saving.keras, _SIDE)
    seen = numbers(20, _SIDE, _SIDE, 3)

    def quantize(converter: Any) -> None:
        lite = saving.tf.lite
        converter.optimizations = [lite.Optimize.DEFAULT]
        converter.representative_dataset = lambda: ([row[None]] for row in seen)
        converter.target_spec.supported_ops = [lite.OpsSet.TFLITE_BUILTINS_INT8]
        converter.inference_input_type = saving.tf.int8
        converter.inference_output_type = saving.tf.int8

    _from_keras(saving, model, change=quantize)
    rows = (integers(256, 4, _SIDE, _SIDE, 3) - 128).astype(np.int8)
    name = model.inputs[0].name
    return Known(list(rows), _litert_answers(saving, *({name: row} for row in rows)))


@tried("A recurrent layer, fused, whose state stays in the interpreter", TFLITE)
def tflite_state(saving: Saving) -> Known:
    # As the converter of Keras 2 writes them; that of Keras 3 writes loops.
    schema = import_module("ai_edge_litert.schema_py_generated")
    weights = numbers(3, 2) - 0.5
    builder = schema.ModelT()
    buffers = [b"", weights.tobytes(), np.eye(3, dtype=np.float32).tobytes(), bytes(12)]
    builder.buffers = [_filled(schema.BufferT(), data=each) for each in buffers]
    shapes = {
        "x": (1, 2),
        "w": (3, 2),
        "u": (3, 3),
        "b": (3,),
        "h": (1, 3),
        "y": (1, 3),
    }
    tensors = [
        _filled(
            schema.TensorT(),
            name=name,
            shape=shape,
            buffer=" wub".find(name) if name in "wub" else 0,
            isVariable=name == "h",
        )
        for name, shape in shapes.items()
    ]
    tanh = schema.ActivationFunctionType.TANH
    operator = _filled(
        schema.OperatorT(),
        inputs=[0, 1, 2, 3, 4],
        outputs=[5],
        builtinOptionsType=schema.BuiltinOptions.RNNOptions,
        builtinOptions=_filled(schema.RNNOptionsT(), fusedActivationFunction=tanh),
    )
    graph = _filled(
        schema.SubGraphT(),
        tensors=tensors,
        inputs=[0],
        outputs=[5],
        operators=[operator],
    )
    rnn = schema.BuiltinOperator.RNN
    code = _filled(schema.OperatorCodeT(), builtinCode=rnn, deprecatedBuiltinCode=rnn)
    model = _filled(builder, version=3, subgraphs=[graph], operatorCodes=[code])
    packed = flatbuffers.Builder()
    packed.Finish(model.Pack(packed), b"TFL3")
    saving.folder.mkdir(parents=True)
    (saving.folder / "model.tflite").write_bytes(packed.Output())
    rows = numbers(3, 2, seed=1)
    return Known(list(rows), list(np.tanh(rows @ weights.T)))


def _filled(table: Any, **fields: Any) -> Any:
    table.__dict__.update(fields)
    return table


@tried("Strings in and out", TFLITE)
def tflite_strings(saving: Saving) -> Known:
    spec = saving.tf.TensorSpec([None, 2], saving.tf.string, "words")
    _from_function(
        saving, lambda words: {"out": saving.tf.reshape(words, [-1, 2, 1])}, spec
    )
    rows = np.array([["a", "bé"], ["", "d"]], object)
    return Known(rows.tolist(), list(rows[..., None]))


@tried(
    "TextVectorization, converted with TensorFlow's operations",
    TFLITE,
    refusal="it needs FlexRaggedTensorToTensor, FlexStaticRegexReplace",
)
def tflite_flex(saving: Saving) -> Known:
    text = saving.keras.Input((), dtype="string")
    vectorize = saving.keras.layers.TextVectorization(
        vocabulary=["good", "bad"], output_sequence_length=4
    )

    def allow(converter: Any) -> None:
        sets = saving.tf.lite.OpsSet
        chosen = [sets.TFLITE_BUILTINS, sets.SELECT_TF_OPS]
        converter.target_spec.supported_ops = chosen

    return _from_keras(saving, saving.keras.Model(text, vectorize(text)), change=allow)


def _graph(  # noqa: PLR0913 - the parts of a graph
    saving: Saving,
    nodes: Sequence[Any],
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
    rows: Mapping[str, Any] | None = None,
    *,
    one_by_one: bool = False,
    external: str | None = None,
    **weights: Any,
) -> Known:
    """Write an ONNX graph, and return what ONNX Runtime answers to the rows.

    Inputs and outputs are (element type, *sizes) by name, and `external` is the name of
    the file for the weights.
    """
    described = [
        [
            helper.make_tensor_value_info(name, kind, list(sizes))
            for name, (kind, *sizes) in each.items()
        ]
        for each in (inputs, outputs)
    ]
    constants = [
        numpy_helper.from_array(np.asarray(array), name)
        for name, array in weights.items()
    ]
    graph = helper.make_graph(nodes, "graph", *described, constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    saving.folder.mkdir(parents=True)
    file = saving.folder / "model.onnx"
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.save(
        model,
        file,
        save_as_external_data=external is not None,
        location=external,
        size_threshold=0,
    )
    if rows is None:
        return Known((), ())
    session = onnxruntime.InferenceSession(file)
    arrays = {name: np.asarray(array) for name, array in rows.items()}
    count = len(next(iter(arrays.values())))
    parts = [slice(n, n + 1) for n in range(count)] if one_by_one else [slice(None)]
    answers = []
    for part in parts:
        given = {name: array[part] for name, array in arrays.items()}
        found = dict(zip(outputs, session.run(list(outputs), given), strict=True))
        answers += by_row(next(iter(found.values())) if len(found) == 1 else found)
    only = next(iter(arrays.values())) if len(arrays) == 1 else arrays
    return Known(by_row(only), answers)


_FLOAT, _INT64 = TensorProto.FLOAT, TensorProto.INT64
_STRING, _BOOL = TensorProto.STRING, TensorProto.BOOL


@tried("Convolution, pooling and scores", ONNX)
def onnx_convolution(saving: Saving) -> Known:
    nodes = [
        helper.make_node("Conv", ["image", "kernel"], ["signal"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["signal"], ["positive"]),
        helper.make_node("GlobalAveragePool", ["positive"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("Gemm", ["flat", "dense"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["scores"]),
    ]
    return _graph(
        saving,
        nodes,
        {"image": (_FLOAT, "batch", 3, "height", "width")},
        {"scores": (_FLOAT, "batch", 5)},
        {"image": numbers(4, 3, 8, 8)},
        kernel=numbers(6, 3, 3, 3) - 0.5,
        dense=numbers(6, 5, seed=1) - 0.5,
    )


@tried("Embedded ids", ONNX)
def onnx_ids(saving: Saving) -> Known:
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"]),
        helper.make_node("ReduceMean", ["rows"], ["mean"], axes=[1], keepdims=0),
    ]
    known = _graph(
        saving,
        nodes,
        {"ids": (_INT64, "batch", "length")},
        {"mean": (_FLOAT, "batch", 4)},
        {"ids": integers(50, 5, 7)},
        table=numbers(50, 4),
    )
    reason = "the model refuses this input: indices element out of data bounds, idx=99"
    return Known(known.rows, known.answers, [[1] * 7, [99] * 7], reason)


@tried("A table of 4 MB in an external file", ONNX)
def onnx_external(saving: Saving) -> Known:
    return _graph(
        saving,
        [helper.make_node("Gather", ["table", "ids"], ["rows"])],
        {"ids": (_INT64, "batch", 2)},
        {"rows": (_FLOAT, "batch", 2, 100)},
        {"ids": integers(10_000, 5, 2)},
        external="table.bin",
        table=numbers(10_000, 100),
    )


# JSON has the shortest number that is the same float16.
@tried("Two inputs, outputs of float16, int64 and bool", ONNX, tolerance=1e-3)
def onnx_several(saving: Saving) -> Known:
    nodes = [
        helper.make_node("Add", ["left", "left"], ["twice"]),
        helper.make_node("Add", ["right", "one"], ["next"]),
        helper.make_node("Greater", ["right", "one"], ["large"]),
    ]
    return _graph(
        saving,
        nodes,
        {"left": (TensorProto.FLOAT16, "n", 2), "right": (_INT64, "n", 3)},
        {
            "twice": (TensorProto.FLOAT16, "n", 2),
            "next": (_INT64, "n", 3),
            "large": (_BOOL, "n", 3),
        },
        {"left": numbers(4, 2).astype(np.float16), "right": integers(9, 4, 3)},
        one=np.int64(1),
    )


@tried("Words to numbers, numbers to names", ONNX)
def onnx_strings(saving: Saving) -> Known:
    words, names = ["good", "bäd"], ["positive", "negativ"]
    domain = {"domain": "ai.onnx.ml"}
    to_number = {"keys_strings": words, "values_int64s": [0, 1], "default_int64": 7}
    to_name = {"keys_int64s": [0, 1], "values_strings": names, "default_string": "?"}
    nodes = [
        helper.make_node("LabelEncoder", ["word"], ["number"], **domain, **to_number),
        helper.make_node("LabelEncoder", ["number"], ["name"], **domain, **to_name),
    ]
    word = {"word": np.array([["good", "bäd"], ["else", "good"]], object)}
    inputs, outputs = {"word": (_STRING, "n", 2)}, {"name": (_STRING, "n", 2)}
    return _graph(saving, nodes, inputs, outputs, word)


@tried("Fixed first dimension 1", ONNX)
def onnx_fixed(saving: Saving) -> Known:
    return _graph(
        saving,
        [helper.make_node("Add", ["x", "x"], ["y"])],
        {"x": (_FLOAT, 1, 4)},
        {"y": (_FLOAT, 1, 4)},
        {"x": numbers(3, 4)},
        one_by_one=True,
    )


@tried("A Reshape with the batch of the example inside", ONNX)
def onnx_fixed_inside(saving: Saving) -> Known:
    return _graph(
        saving,
        [helper.make_node("Reshape", ["x", "sizes"], ["y"])],
        {"x": (_FLOAT, "batch", 2, 2)},
        {"y": (_FLOAT, "batch", 4)},
        {"x": numbers(3, 2, 2)},
        one_by_one=True,
        sizes=np.array([1, 4]),
    )


@tried("A classifier of scikit-learn with ZipMap", ONNX, refusal="zipmap=False")
def onnx_zipmap(saving: Saving) -> Known:
    names = {"classlabels_strings": ["a", "b"], "domain": "ai.onnx.ml"}
    known = _graph(
        saving,
        [helper.make_node("ZipMap", ["x"], ["maps"], **names)],
        {"x": (_FLOAT, "n", 2)},
        {},
    )
    model = onnx.load(saving.folder / "model.onnx")
    maps = helper.make_map_type_proto(
        _STRING, helper.make_tensor_type_proto(_FLOAT, [])
    )
    kind = helper.make_sequence_type_proto(maps)
    model.graph.output.append(helper.make_value_info("maps", kind))
    onnx.save(model, saving.folder / "model.onnx")
    return known
