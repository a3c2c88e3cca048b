"""Models with code of their own: refused as Keras files, served as exports."""

from typing import Any

from testing.tried.case import EXPORT, H5, KERAS, SAVED_MODEL, tried
from testing.tried.saving import Known, Saving, numbers

_DEFINE_IT = "is code of yours: define it in service.py beside the file"
_EXPORT_IT = "is code of yours, which is not run here: write a SavedModel"


def _defined_in_a_notebook(kind: type) -> None:
    kind.__module__ = "__main__"


def _with_a_layer(saving: Saving) -> Any:
    """Return a model with a layer that is registered, as Keras advises."""
    keras = saving.keras

    class Doubled(keras.layers.Layer):
        def call(self, row: Any) -> Any:
            return row * 2

    _defined_in_a_notebook(Doubled)
    keras.saving.register_keras_serializable()(Doubled)
    row = keras.Input((3,))
    return keras.Model(row, keras.layers.Dense(2)(Doubled()(row)))


def _with_a_lambda(saving: Saving) -> Any:
    keras = saving.keras
    row = keras.Input((3,))
    return keras.Model(row, keras.layers.Lambda(lambda values: values**2)(row))


def _subclassed(saving: Saving) -> Any:
    """Return a subclassed model that was called once."""
    keras = saving.keras

    class Mine(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.hidden = keras.layers.Dense(6, activation="relu")
            self.last = keras.layers.Dense(2)

        def call(self, row: Any) -> Any:
            return self.last(self.hidden(row))

    _defined_in_a_notebook(Mine)
    model = Mine()
    model(numbers(1, 3))
    return model


@tried("A registered layer of one's own", KERAS, refusal=_DEFINE_IT)
def own_layer(saving: Saving) -> Known:
    return saving.save(_with_a_layer(saving))


@tried("A registered layer of one's own", EXPORT)
def own_layer_exported(saving: Saving) -> Known:
    return saving.export(_with_a_layer(saving), numbers(4, 3))


@tried("Lambda layer", KERAS, refusal=f"a Python lambda {_EXPORT_IT}")
def lambda_layer(saving: Saving) -> Known:
    return saving.save(_with_a_lambda(saving))


@tried("Lambda layer", H5, refusal=f"a Python lambda {_EXPORT_IT}")
def lambda_layer_h5(saving: Saving) -> Known:
    return saving.save(_with_a_lambda(saving), name="model.h5")


@tried("Lambda layer", EXPORT)
def lambda_layer_exported(saving: Saving) -> Known:
    return saving.export(_with_a_lambda(saving), numbers(4, 3))


@tried("Subclassed model", KERAS, refusal=_DEFINE_IT)
def subclassed(saving: Saving) -> Known:
    return saving.save(_subclassed(saving))


@tried("Subclassed model", EXPORT)
def subclassed_exported(saving: Saving) -> Known:
    return saving.export(_subclassed(saving), numbers(4, 3))


@tried("Subclassed model", SAVED_MODEL)
def subclassed_saved(saving: Saving) -> Known:
    model, tf = _subclassed(saving), saving.tf
    serve = (model.call, tf.TensorSpec([None, 3], tf.float32, "row"))
    return saving.functions(numbers(4, 3), keep=model, serving_default=serve)
