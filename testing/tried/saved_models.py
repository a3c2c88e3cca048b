"""SavedModels of functions and graphs, and of TensorFlow 1."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from testing.tried.case import SAVED_MODEL, tried
from testing.tried.saving import Known, Saving, integers, numbers

HALF_PLUS_TWO = np.float32([1.0, 2.0, 5.0])


def half_plus_two_graph(saving: Saving) -> None:
    """Write half_plus_two as TensorFlow Serving's own script does.

    Inputs and outputs of (-1, 1), and signatures to classify and to regress, which read
    serialized examples.
    """
    v1 = saving.tf.compat.v1
    with v1.Graph().as_default(), v1.Session() as session:
        half, two = v1.Variable(0.5), v1.Variable(2.0)
        examples = v1.placeholder(v1.string, [None], name="tf_example")
        features = {"x": v1.FixedLenFeature([1], v1.float32, [0.0])}
        parsed = v1.parse_example(examples, features)
        x = v1.identity(parsed["x"], name="x")
        y = v1.add(v1.multiply(half, x), two, name="y")
        info = v1.saved_model.utils.build_tensor_info
        signature = v1.saved_model.signature_def_utils
        signatures = {
            "serving_default": signature.predict_signature_def({"x": x}, {"y": y}),
            "regress_x_to_y": signature.build_signature_def(
                {"inputs": info(examples)},
                {"outputs": info(y)},
                "tensorflow/serving/regress",
            ),
            "classify_x_to_y": signature.build_signature_def(
                {"inputs": info(examples)},
                {"scores": info(y)},
                "tensorflow/serving/classify",
            ),
        }
        session.run(v1.global_variables_initializer())
        builder = v1.saved_model.builder.SavedModelBuilder(str(saving.folder))
        tags = [v1.saved_model.tag_constants.SERVING]
        builder.add_meta_graph_and_variables(session, tags, signatures)
        builder.save()


def _half_plus_two(x: Any) -> dict[str, Any]:
    return {"y": x * 0.5 + 2.0}


@tried("half_plus_two as TensorFlow Serving publishes it", SAVED_MODEL)
def half_plus_two(saving: Saving) -> Known:
    half_plus_two_graph(saving)
    # Bare values, as in TensorFlow Serving's first example, get bare values.
    return Known(HALF_PLUS_TWO, HALF_PLUS_TWO / 2 + 2)


@tried("half_plus_two of (None, 1)", SAVED_MODEL)
def half_plus_two_column(saving: Saving) -> Known:
    tf = saving.tf
    x = tf.TensorSpec([None, 1], tf.float32, "x")
    rows = HALF_PLUS_TWO[:, np.newaxis]
    return saving.functions(rows, serving_default=(_half_plus_two, x))


@tried("half_plus_two of (None,)", SAVED_MODEL)
def half_plus_two_scalars(saving: Saving) -> Known:
    tf = saving.tf
    x = tf.TensorSpec([None], tf.float32, "x")
    return saving.functions(HALF_PLUS_TWO, serving_default=(_half_plus_two, x))


@tried("tf.Module with several signatures", SAVED_MODEL)
def several_signatures(saving: Saving) -> Known:
    tf = saving.tf
    return saving.functions(
        {"prices": numbers(4, 3), "customer": np.array(["a", "b", "c", "d"], object)},
        serving_default=(
            lambda prices, customer: {
                "total": tf.reduce_sum(prices, axis=1),
                "receipt": tf.strings.join([customer, " pays"]),
            },
            tf.TensorSpec([None, 3], tf.float32, "prices"),
            tf.TensorSpec([None], tf.string, "customer"),
        ),
        pack=(
            lambda goods: {"bag": tf.strings.upper(goods)},
            tf.TensorSpec([None], tf.string, "goods"),
        ),
    )


@tried("uint8 in, float64 and int64 out", SAVED_MODEL)
def several_dtypes(saving: Saving) -> Known:
    tf = saving.tf
    return saving.functions(
        integers(256, 4, 5).astype(np.uint8),
        serving_default=(
            lambda x: {
                "mean": tf.reduce_mean(tf.cast(x, tf.float64), axis=1),
                "best": tf.argmax(x, axis=1),
            },
            tf.TensorSpec([None, 5], tf.uint8, "x"),
        ),
    )


@tried("Ragged tensors within: words of a text counted", SAVED_MODEL)
def ragged_within(saving: Saving) -> Known:
    tf = saving.tf
    return saving.functions(
        np.array(["good tea", "", "one two three"], object),
        serving_default=(
            lambda text: {"words": tf.strings.split(text).row_lengths()},
            tf.TensorSpec([None], tf.string, "text"),
        ),
    )


@tried("tf.lookup table of words", SAVED_MODEL)
def lookup_table(saving: Saving) -> Known:
    tf = saving.tf
    # Kept by the module, as it is a resource.
    words = tf.lookup.KeyValueTensorInitializer(
        tf.constant(["tea", "milk"]), tf.constant([3, 4], tf.int64)
    )
    table = tf.lookup.StaticHashTable(words, -1)
    return saving.functions(
        np.array(["milk", "rice", "tea"], object),
        keep=table,
        serving_default=(
            lambda word: {"number": table.lookup(word)},
            tf.TensorSpec([None], tf.string, "word"),
        ),
    )


@contextmanager
def edited(saving: Saving) -> Iterator[Any]:
    """Yield the only graph of the folder's saved_model.pb; write it back."""
    from tensorflow.core.protobuf import saved_model_pb2  # noqa: PLC0415

    file = saving.folder / "saved_model.pb"
    content = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    yield content.meta_graphs[0]
    file.write_bytes(content.SerializeToString())


def legacy_optimizer_model(saving: Saving) -> Known:
    """Write a model as tf.keras 2.0 to 2.10 did, which saved an optimizer with slots.

    Without the identifier `optimizer`, by which TensorFlow imports tf_keras where that
    is installed.
    """
    tf = saving.tf
    kernel = tf.Variable(numbers(3, 2))
    optimizer = tf.Module()
    optimizer.momentum = tf.Variable(tf.zeros([3, 2]))
    known = saving.functions(
        numbers(4, 3),
        keep=[kernel, optimizer],
        serving_default=(
            lambda row: {"score": row @ kernel},
            tf.TensorSpec([None, 3], tf.float32, "row"),
        ),
    )
    with edited(saving) as graph:
        nodes = graph.object_graph_def.nodes
        (owner,) = (
            node
            for node in nodes
            if [each.local_name for each in node.children] == ["momentum"]
        )
        slot = owner.children.pop().node_id
        variables = [n for n, node in enumerate(nodes) if node.HasField("variable")]
        (original,) = {*variables} - {slot}
        owner.slot_variables.add(
            original_variable_node_id=original,
            slot_name="m",
            slot_variable_node_id=slot,
        )
    return known


@tried("An optimizer with slots, as tf.keras 2.0 to 2.10 saved it", SAVED_MODEL)
def legacy_optimizer(saving: Saving) -> Known:
    return legacy_optimizer_model(saving)


@tried("Training with an operation and a type of another package", SAVED_MODEL)
def training_of_another_package(saving: Saving) -> Known:
    tf = saving.tf
    kernel = tf.Variable(numbers(3, 2))
    train = tf.function(
        lambda row: tf.RaggedTensor.from_tensor(tf.atan(row @ kernel)),
        input_signature=[tf.TensorSpec([None, 3], tf.float32, "row")],
    )
    known = saving.functions(
        numbers(4, 3),
        keep=[kernel, train],
        serving_default=(
            lambda row: {"score": row @ kernel},
            tf.TensorSpec([None, 3], tf.float32, "row"),
        ),
    )
    with edited(saving) as graph:
        for function in graph.graph_def.library.function:
            for node in function.node_def:
                if node.op == "Atan":
                    node.op = "AtanOfAnotherPackage"
        for function in graph.object_graph_def.concrete_functions.values():
            spec = function.output_signature.type_spec_value
            if spec.type_spec_class_name:
                spec.type_spec_class = spec.EXTENSION_TYPE_SPEC
                spec.type_spec_class_name = "another_package.Spec"
    return known


@tried(
    "Ragged tensor in",
    SAVED_MODEL,
    refusal="let the saved function take a dense tensor, with tf.RaggedTensor",
)
def ragged_input(saving: Saving) -> Known:
    tf = saving.tf
    ids = tf.RaggedTensorSpec([None, None], tf.float32)
    return saving.functions(
        serving_default=(lambda ids: {"sum": tf.reduce_sum(ids, axis=1)}, ids)
    )


@tried(
    "Sparse tensor in",
    SAVED_MODEL,
    refusal="let the saved function take a dense tensor, with tf.sparse.from_dense(x)",
)
def sparse_input(saving: Saving) -> Known:
    tf = saving.tf
    row = tf.SparseTensorSpec([None, 4], tf.float32)
    return saving.functions(
        serving_default=(lambda row: {"sum": tf.sparse.reduce_sum(row, axis=1)}, row)
    )


def dropout_graph(saving: Saving) -> Any:
    """Write a graph of TensorFlow 1 with single values beside its rows."""
    v1 = saving.tf.compat.v1
    with v1.Graph().as_default(), v1.Session() as session:
        row = v1.placeholder(v1.float32, [None, 3], "row")
        is_training = v1.placeholder(v1.bool, [], "is_training")
        keep_prob = v1.placeholder(v1.float32, [], "keep_prob")
        kernel = v1.get_variable("kernel", initializer=numbers(3, 2), use_resource=True)
        dropped = v1.nn.dropout(row, rate=1 - keep_prob)
        score = v1.cond(is_training, lambda: dropped, lambda: row) @ kernel
        session.run(v1.global_variables_initializer())
        v1.saved_model.simple_save(
            session,
            str(saving.folder),
            {"row": row, "is_training": is_training, "keep_prob": keep_prob},
            {"score": score},
        )
        rows = numbers(4, 3)
        return Known(rows, rows @ numbers(3, 2))


CONSTANTS = """[constants]
is_training = false
keep_prob = 1
"""


@tried("`is_training` and `keep_prob`, with `[constants]`", SAVED_MODEL)
def dropout_with_constants(saving: Saving) -> Known:
    known = dropout_graph(saving)
    (saving.folder.parent / "basket.toml").write_text(CONSTANTS)
    return known


def with_operation(saving: Saving, name: str) -> Known:
    """Write a signature with an operation that no package here registers."""
    tf = saving.tf
    saving.functions(
        serving_default=(
            lambda row: {"score": tf.atan(row)},
            tf.TensorSpec([None, 3], tf.float32, "row"),
        ),
    )
    with edited(saving) as graph:
        for function in graph.graph_def.library.function:
            for node in function.node_def:
                node.op = name if node.op == "Atan" else node.op
    return Known((), ())


@tried(
    "An operation of TF Text",
    SAVED_MODEL,
    refusal="the operation 'TFText>Utf8Binarize' is of tensorflow-text: pip install",
)
def tf_text_operation(saving: Saving) -> Known:
    return with_operation(saving, "TFText>Utf8Binarize")
