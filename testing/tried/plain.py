"""Regressors, classifiers and tables."""

import numpy as np

from testing.tried.case import EXPORT, H5, KERAS, tried
from testing.tried.saving import Known, Saving, integers, numbers


@tried("Dense regressor with output (1,), trained for an epoch", KERAS)
def dense_regressor(saving: Saving) -> Known:
    layers = saving.keras.layers
    model = saving.keras.Sequential(
        [saving.keras.Input((8,)), layers.Dense(16, activation="relu"), layers.Dense(1)]
    )
    model.compile("adam", "mse")
    rows = numbers(32, 8)
    model.fit(rows, rows.sum(axis=1), verbose=0)
    return saving.save(model, rows[:5])


def _classifier(saving: Saving) -> object:
    layers = saving.keras.layers
    return saving.keras.Sequential(
        [
            saving.keras.Input((20,)),
            layers.Dense(32, activation="relu"),
            layers.Dropout(0.5),
            layers.Dense(4, activation="softmax"),
        ]
    )


@tried("Classifier of dense layers with dropout", KERAS)
def classifier(saving: Saving) -> Known:
    return saving.save(_classifier(saving), numbers(5, 20))


@tried("Classifier of dense layers with dropout", H5)
def classifier_h5(saving: Saving) -> Known:
    return saving.save(_classifier(saving), numbers(5, 20), "model.h5")


@tried("Binary classifier with input (1,)", KERAS)
def one_feature(saving: Saving) -> Known:
    age = saving.keras.Input((1,), name="age")
    score = saving.keras.layers.Dense(1, activation="sigmoid")(age)
    return saving.save(saving.keras.Model(age, score), numbers(5, 1))


@tried("Sequential without an Input, built by its first call", KERAS)
def built_by_a_call(saving: Saving) -> Known:
    layers = saving.keras.layers
    model = saving.keras.Sequential([layers.Dense(6, "relu"), layers.Dense(2)])
    model(numbers(1, 5))
    return saving.save(model, numbers(4, 5))


@tried("Residual blocks of dense layers", KERAS)
def residual(saving: Saving) -> Known:
    layers = saving.keras.layers
    row = saving.keras.Input((16,))
    signal = row
    for _ in range(3):
        inner = layers.Dense(16, activation="gelu")(signal)
        signal = layers.LayerNormalization()(layers.Add()([signal, inner]))
    return saving.save(saving.keras.Model(row, signal), numbers(5, 16))


@tried("Two inputs, in a list", KERAS)
def several_inputs(saving: Saving) -> Known:
    layers = saving.keras.layers
    left = saving.keras.Input((3,), name="left")
    right = saving.keras.Input((2,), name="right")
    joined = layers.Concatenate()([left, right])
    model = saving.keras.Model([left, right], layers.Dense(2)(joined))
    return saving.save(model, {"left": numbers(4, 3), "right": numbers(4, 2)})


@tried("Several outputs, in a dict", KERAS)
def outputs_in_a_dict(saving: Saving) -> Known:
    layers = saving.keras.layers
    row = saving.keras.Input((6,))
    outputs = {"price": layers.Dense(1)(row), "kind": layers.Dense(3, "softmax")(row)}
    return saving.save(saving.keras.Model(row, outputs), numbers(4, 6))


@tried("Several outputs, in a list", KERAS)
def outputs_in_a_list(saving: Saving) -> Known:
    layers = saving.keras.layers
    row = saving.keras.Input((6,))
    outputs = [layers.Dense(1, name="b")(row), layers.Dense(3, name="a")(row)]
    return saving.save(saving.keras.Model(row, outputs), numbers(4, 6))


@tried("A model as a layer of another", KERAS)
def nested(saving: Saving) -> Known:
    layers = saving.keras.layers
    inner = saving.keras.Sequential(
        [saving.keras.Input((4,)), layers.Dense(8, "tanh"), layers.Dense(4)]
    )
    row = saving.keras.Input((4,))
    model = saving.keras.Model(row, layers.Dense(2)(inner(layers.Dense(4)(row))))
    return saving.save(model, numbers(5, 4))


@tried("A shared layer: two inputs compared", KERAS)
def shared_layer(saving: Saving) -> Known:
    layers = saving.keras.layers
    shared = layers.Dense(8, "relu")
    one, other = (saving.keras.Input((5,), name=name) for name in ("one", "other"))
    product = layers.Dot(axes=1, normalize=True)([shared(one), shared(other)])
    model = saving.keras.Model([one, other], product)
    return saving.save(model, {"one": numbers(4, 5), "other": numbers(4, 5, seed=1)})


@tried("Recommender: embeddings of users and goods", KERAS)
def recommender(saving: Saving) -> Known:
    layers = saving.keras.layers
    inputs = {
        name: saving.keras.Input((), name=name, dtype="int32")
        for name in ("user", "goods")
    }
    vectors = [layers.Embedding(50, 8)(each) for each in inputs.values()]
    model = saving.keras.Model(inputs, layers.Dot(axes=1)(vectors))
    rows = {name: integers(50, 6, seed=seed) for seed, name in enumerate(inputs)}
    return saving.save(model, rows)


def _table(saving: Saving) -> tuple[object, dict[str, np.ndarray]]:
    """Return a model of text, numbers and ages, and rows."""
    keras, layers = saving.keras, saving.keras.layers
    rows = {
        "city": np.array([["Rome"], ["Oslo"], ["Lima"], ["Rome"]], object),
        "code": np.array([[7], [8], [9], [99]]),
        "income": np.float32([[1000], [2500], [1800], [900]]),
        "age": np.float32([[17], [25], [44], [70]]),
        "member": np.array([[True], [False], [True], [True]]),
    }
    dtypes = {"city": "string", "code": "int64", "member": "bool"}
    inputs = {
        name: keras.Input((1,), name=name, dtype=dtypes.get(name, "float32"))
        for name in rows
    }
    income = layers.Normalization()
    income.adapt(rows["income"])
    ages = layers.Discretization([18, 30, 60])(inputs["age"])
    cities = {"vocabulary": ["Rome", "Oslo"], "output_mode": "one_hot"}
    codes = {"vocabulary": [7, 8, 9], "output_mode": "one_hot"}
    parts = [
        layers.StringLookup(**cities)(inputs["city"]),
        layers.Hashing(5, output_mode="one_hot")(inputs["city"]),
        layers.IntegerLookup(**codes)(inputs["code"]),
        layers.CategoryEncoding(4, output_mode="one_hot")(ages),
        income(inputs["income"]),
        keras.ops.cast(inputs["member"], "float32"),
    ]
    score = layers.Dense(1, activation="sigmoid")(layers.Concatenate()(parts))
    return keras.Model(inputs, score), rows


@tried("Table: StringLookup, Hashing, Normalization, Discretization and others", KERAS)
def table(saving: Saving) -> Known:
    return saving.save(*_table(saving))


@tried("Table: StringLookup, Hashing, Normalization, Discretization and others", EXPORT)
def table_exported(saving: Saving) -> Known:
    return saving.export(*_table(saving))


@tried("float64 in and out", KERAS)
def float64(saving: Saving) -> Known:
    row = saving.keras.Input((4,), dtype="float64")
    model = saving.keras.Model(row, saving.keras.layers.Dense(3, dtype="float64")(row))
    return saving.save(model, numbers(4, 4).astype("f8"))


@tried("int64 in, bool out", KERAS)
def bool_output(saving: Saving) -> Known:
    row = saving.keras.Input((3,), dtype="int64", name="row")
    return saving.save(saving.keras.Model(row, row > 5), integers(10, 4, 3))


@tried("Names of classes: strings out", KERAS)
def string_output(saving: Saving) -> Known:
    layers = saving.keras.layers
    row = saving.keras.Input((6,))
    best = saving.keras.ops.argmax(layers.Dense(3)(row), axis=-1)
    words = ["tea", "milk", "rice"]
    name = layers.StringLookup(vocabulary=words, num_oov_indices=0, invert=True)(best)
    return saving.save(saving.keras.Model(row, name), numbers(6, 6))


@tried("Policy mixed_bfloat16", KERAS, tolerance=2e-2)
def mixed_bfloat16(saving: Saving) -> Known:
    return _mixed(saving, "mixed_bfloat16")


@tried("Policy mixed_float16", KERAS, tolerance=2e-3)
def mixed_float16(saving: Saving) -> Known:
    return _mixed(saving, "mixed_float16")


def _mixed(saving: Saving, policy: str) -> Known:
    layers = saving.keras.layers
    row = saving.keras.Input((12,))
    signal = layers.Dense(16, activation="relu", dtype=policy)(row)
    scores = layers.Dense(4, dtype=policy)(signal)
    model = saving.keras.Model(
        row, layers.Activation("softmax", dtype="float32")(scores)
    )
    return saving.save(model, numbers(5, 12))


@tried('`model.quantize("int8")`', KERAS)
def quantized(saving: Saving) -> Known:
    model = _classifier(saving)
    model.quantize("int8")
    return saving.save(model, numbers(5, 20))
