"""SavedModels of functions and graphs, and of TensorFlow 1."""

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
