"""Known rows at load, with models as Keras writes them."""

import pytest

from app.errors import ModelLoadError
from app.repository.loading.opener import Opener
from app.settings import Settings
from app.settings.model_config import ModelConfig
from tests.support.jobs import Notes
from tests.support.marks import USES_TENSORFLOW

pytestmark = USES_TENSORFLOW


@pytest.fixture
def load(tmp_path):
    """Save or export a model, and load it as the server does."""

    def load_(model, *, export=False, **limits):
        folder = tmp_path / "1"
        folder.mkdir()
        if export:
            model.export(str(folder), verbose=False)
        else:
            model.save(folder / "model.keras")
        opener = Opener(lambda *_: Notes())
        served = opener.open("m", 1, folder, ModelConfig(Settings(**limits)))
        served.runner.close(10)
        return served

    return load_


@pytest.mark.parametrize("limits", [{}, {"max_batch_size": 1}], ids=["64", "1"])
def test_exported_time_distributed_over_free_steps_is_a_load_error(keras, load, limits):
    """It computes a step for each row, which is wrong for a single row too."""
    steps = keras.Input((None, 3))
    model = keras.Model(
        steps, keras.layers.TimeDistributed(keras.layers.Dense(4))(steps)
    )
    with pytest.raises(
        ModelLoadError,
        match=r"a row's output_0 has shape \(1, 4\) in a batch of 1 and \(4, 4\) in "
        r"one of 4. So Keras computes TimeDistributed over a free number of steps",
    ):
        load(model, export=True, **limits)


@pytest.mark.parametrize("export", [False, True], ids=["keras", "SavedModel"])
def test_model_that_subtracts_the_mean_of_its_batch_is_not_batched(keras, load, export):
    """All of its signatures say so."""
    row = keras.Input((4,))
    mean = keras.ops.mean(row, axis=0, keepdims=True)
    served = load(keras.Model(row, row - mean), export=export)
    for signature in served.signatures.values():
        assert "its rows depend on each other" in signature.batching_note()
        assert signature.batch_sizes([8, 64]) == (1,)


def test_model_that_subtracts_the_mean_of_its_batch_may_be_served_alone(keras, load):
    """With max_batch_size = 1 its rows have no neighbors, and nothing is said."""
    row = keras.Input((4,))
    mean = keras.ops.mean(row, axis=0, keepdims=True)
    served = load(keras.Model(row, row - mean), max_batch_size=1)
    assert not served.signatures["serving_default"].batching_note()


def test_model_of_half_precision_is_batched(keras, load):
    """Its rows differ a little between batches of different sizes."""
    layers = keras.layers
    picture = keras.Input((32, 32, 3))
    found = layers.Conv2D(16, 3, dtype="mixed_float16")(picture)
    found = layers.GlobalAveragePooling2D(dtype="mixed_float16")(found)
    served = load(keras.Model(picture, layers.Dense(10, activation="softmax")(found)))
    assert not served.signatures["serving_default"].batching_note()


def test_model_that_samples_is_served(tf, load, caplog):
    """Its answers differ from run to run, which a warning says."""

    class Samples(tf.Module):
        spec = tf.TensorSpec([None, 8], tf.float32, "x")

        @tf.function(input_signature=[spec])
        def sample(self, x):
            return {"y": x + tf.random.normal(tf.shape(x))}

        def export(self, folder, verbose):
            tf.saved_model.save(self, folder, signatures=self.sample)

    served = load(Samples(), export=True)
    assert not served.signatures["serving_default"].batching_note()
    assert caplog.text.count("answers differ from run to run") == 1


def test_model_over_free_lengths_of_ids_is_served(keras, load, caplog):
    """Ids are tried below a small vocabulary; nothing is warned of."""
    ids = keras.Input((None,), dtype="int32")
    signal = keras.layers.Embedding(20, 8)(ids)
    signal = keras.layers.MultiHeadAttention(2, 4)(signal, signal)
    caplog.set_level("INFO", "app")
    load(keras.Model(ids, keras.layers.LSTM(4)(signal)))
    # TensorFlow's own lines depend on the tests before.
    assert not [each for each in caplog.records if each.name.startswith("app.")]
