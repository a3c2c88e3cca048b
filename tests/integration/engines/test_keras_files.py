"""Files that are not quite what their names say, or that Keras 3 can't read."""

import json
import pickle
import zipfile

import h5py
import numpy as np
import pytest

from app.engines.reference import Reference
from app.errors import ModelLoadError
from app.settings import Settings
from app.settings.model_files import PICKLE, PYTORCH
from tests.support.marks import USES_TENSORFLOW

pytestmark = [*USES_TENSORFLOW, pytest.mark.filterwarnings("ignore::UserWarning")]

EXPORT = 'write a SavedModel with model.export("models/NAME/VERSION")'
SERVICE = "service.py beside the file, with BASKET_USER_CODE=on"
SAVE = 'save the whole model with model.save("model.keras")'


@pytest.fixture
def open_(tf, tmp_path):
    """Open a file of the test's folder as the server does."""
    from app.engines.tensorflow import keras_file  # noqa: PLC0415

    return lambda name: keras_file.open_engine(tmp_path / name, Settings())


@pytest.fixture
def refusal(open_, tmp_path):
    """Return the text with which a file is refused."""

    def refusal_(name):
        with pytest.raises(ModelLoadError) as raised:
            open_(name)
        text = str(raised.value)
        assert str(tmp_path) not in text
        assert "\n" not in text
        return text

    return refusal_


def _dense(keras):
    row = keras.Input((3,), name="row")
    return keras.Model(row, keras.layers.Dense(2, name="scores")(row))


def _edit_zip(file, version, edit):
    """Rewrite the version of Keras and the configuration in a .keras file."""
    with zipfile.ZipFile(file) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    parts["metadata.json"] = json.dumps({"keras_version": version}).encode()
    config = json.loads(parts["config.json"])
    edit(config)
    parts["config.json"] = json.dumps(config).encode()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)


@pytest.mark.parametrize(
    ("saved", "name"), [("model.keras", "model.h5"), ("model.h5", "model.keras")]
)
def test_content_decides_how_a_file_is_read(keras, open_, tmp_path, saved, name):
    """Old versions of Keras wrote HDF5 under both names."""
    model = _dense(keras)
    model.save(tmp_path / saved)
    (tmp_path / saved).rename(tmp_path / name)
    rows = np.ones((2, 3), np.float32)
    scores = open_(name).run({"row": rows})["scores"]
    np.testing.assert_allclose(scores, model.predict(rows, verbose=0), atol=1e-6)


@pytest.fixture
def tf_keras():
    return pytest.importorskip("tf_keras")


def _save_sums_over_time(tf_keras, file):
    """Save a model of which Keras 3 has no equal: steps come before rows."""
    steps = tf_keras.Input((5, 3), name="steps")
    recurrent = tf_keras.layers.LSTM(2, time_major=True, return_sequences=True)
    model = tf_keras.Model(steps, recurrent(steps))
    model.save(file)
    return model


@pytest.mark.parametrize("name", ["model.h5", "model.keras"])
def test_keras_2_file_with_another_meaning_is_a_load_error(
    keras, tf_keras, refusal, tmp_path, monkeypatch, name
):
    """Only an argument of its default is left out; the error has both commands."""
    _save_sums_over_time(tf_keras, tmp_path / name)
    monkeypatch.setattr("app.engines.tensorflow.keras_file.find_spec", lambda _: None)
    assert refusal(name) == (
        f"{name} was written by Keras {tf_keras.__version__}, and Keras "
        f"{keras.__version__} can't read it (Unrecognized keyword arguments passed to "
        "LSTM: {'time_major': True}): `pip install --require-hashes -r "
        "requirements/keras2.txt`, then `flask --app wsgi models convert FILE`"
    )


def test_keras_2_file_with_another_meaning_is_converted_where_tf_keras_is(
    tf_keras, open_, tmp_path, caplog
):
    """The log says so, and how to do it once."""
    caplog.set_level("INFO")
    model = _save_sums_over_time(tf_keras, tmp_path / "model.h5")
    rows = np.random.default_rng(0).random((4, 5, 3), np.float32)
    engine = open_("model.h5")
    assert engine.platform == "tensorflow_keras"
    (found,) = engine.run({"steps": rows}).values()
    np.testing.assert_allclose(found, model(rows), rtol=0, atol=1e-6)
    assert "model.h5: only Keras 2 reads it" in caplog.text
    assert f"differs from tf_keras {tf_keras.__version__}'s" in caplog.text


def test_converted_model_with_other_answers_is_closed(
    tf_keras, refusal, tmp_path, monkeypatch
):
    """It holds the memory of a device."""
    _save_sums_over_time(tf_keras, tmp_path / "model.h5")
    closed = []

    def differs(_, engine):
        monkeypatch.setattr(engine, "close", lambda: closed.append(engine))
        raise ModelLoadError("out differs from tf_keras's")

    monkeypatch.setattr(Reference, "check", differs)
    assert refusal("model.h5") == "out differs from tf_keras's"
    assert len(closed) == 1


def test_class_of_ones_own_comes_before_the_version_of_keras(
    tf_keras, refusal, tmp_path
):
    """Also behind a layer that only Keras 2 has."""

    class Mine(tf_keras.layers.Layer):
        pass

    row = tf_keras.Input((3,))
    model = tf_keras.Model(row, Mine()(tf_keras.layers.ThresholdedReLU()(row)))
    model.save(tmp_path / "model.h5")
    assert refusal("model.h5") == (
        f"model.h5: layer 'Mine' is code of yours: define it in {SERVICE}, or {EXPORT}"
    )


# Differences between the files of tf_keras and those of older versions.
def _as_keras_2_2(config):
    """Return a configuration without modules, and with sequential models as lists."""
    if isinstance(config, list):
        return [_as_keras_2_2(each) for each in config]
    if not isinstance(config, dict):
        return config
    newer = ("module", "registered_name", "shared_object_id", "time_major", "groups")
    found = {key: _as_keras_2_2(each) for key, each in config.items()}
    found = {key: each for key, each in found.items() if key not in newer}
    if found.get("class_name") == "Functional":
        found["class_name"] = "Model"
    if found.get("class_name") == "Sequential":
        found["config"] = found["config"]["layers"][1:]
    return found


@pytest.mark.parametrize("is_functional", [False, True])
def test_keras_2_2_file_answers_as_tf_keras_does(
    tf_keras, open_, tmp_path, is_functional
):
    """Its sequential models are lists, and it is read without tf_keras."""
    layers = tf_keras.layers
    gru = layers.GRU(3, recurrent_activation="hard_sigmoid", reset_after=False)
    model = tf_keras.Sequential(
        [layers.Bidirectional(gru, input_shape=(5, 3)), layers.Dense(2)]
    )
    if is_functional:
        steps = tf_keras.Input((5, 3))
        model = tf_keras.Model(steps, layers.Dense(2)(model(steps)))
    model.save(tmp_path / "model.h5")
    with h5py.File(tmp_path / "model.h5", "r+") as file:
        file.attrs["keras_version"] = "2.2.4"
        config = _as_keras_2_2(json.loads(file.attrs["model_config"]))
        file.attrs["model_config"] = json.dumps(config)
    rows = np.random.default_rng(0).normal(size=(4, 5, 3)).astype(np.float32)
    engine = open_("model.h5")
    assert engine.platform == "tensorflow_keras"
    (spec,) = engine.signatures["serving_default"].inputs
    (found,) = engine.run({spec.name: rows}).values()
    np.testing.assert_allclose(found, model(rows), rtol=0, atol=1e-6)


def _as_keras_hub_backbone(config):
    config.update(
        module="keras_hub.src.models.bert.bert_backbone",
        class_name="BertBackbone",
        registered_name="keras_hub>BertBackbone",
    )


def _as_keras_hub_layer(config):
    config["config"]["layers"][1].update(
        module="keras_hub.src.layers.modeling.rms_normalization",
        class_name="RMSNormalization",
        registered_name="keras_hub>RMSNormalization",
    )


@pytest.mark.parametrize(
    ("edit", "name"),
    [
        (_as_keras_hub_backbone, "BertBackbone"),
        (_as_keras_hub_layer, "RMSNormalization"),
    ],
)
def test_class_of_another_package_is_a_load_error(keras, refusal, tmp_path, edit, name):
    """The error names the package, as KerasHub."""
    _dense(keras).save(tmp_path / "model.keras")
    _edit_zip(tmp_path / "model.keras", keras.__version__, edit)
    assert refusal("model.keras") == (
        f"model.keras: class {name!r} is code of keras_hub: import it in {SERVICE}, "
        f"or, where that is installed, {EXPORT}"
    )


def test_registered_class_in_hdf5_is_a_load_error(keras, refusal, tmp_path):
    """HDF5 has the package's name before the class's."""

    @keras.saving.register_keras_serializable(package="fancy")
    class Twice(keras.layers.Layer):
        def call(self, rows):
            return rows * 2

    keras.Sequential([keras.Input((3,)), Twice()]).save(tmp_path / "model.h5")
    del keras.saving.get_custom_objects()["fancy>Twice"]
    assert refusal("model.h5") == (
        f"model.h5: layer 'Twice' is code of fancy: import it in {SERVICE}, or, where "
        f"that is installed, {EXPORT}"
    )


@pytest.mark.parametrize("name", ["model.h5", "model.keras"])
def test_weights_alone_are_a_load_error(keras, refusal, tmp_path, name):
    """They do not contain the model's layers."""
    _dense(keras).save_weights(tmp_path / "saved.weights.h5")
    (tmp_path / "saved.weights.h5").rename(tmp_path / name)
    assert refusal(name) == f"{name} holds weights without a model: {SAVE}"


LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12\n"


@pytest.mark.parametrize("name", ["model.h5", "model.keras"])
@pytest.mark.parametrize(
    ("content", "text"),
    [
        pytest.param(b"", "is no whole {} file (0 bytes): half copied, or damaged"),
        pytest.param(
            LFS_POINTER,
            "is a Git LFS pointer: run git lfs pull, and copy the file again",
            id="git lfs",
        ),
        pytest.param(
            pickle.dumps({"weights": [1.0]}),
            PICKLE,
            id="pickle",
        ),
    ],
)
def test_other_content_is_a_load_error(refusal, tmp_path, name, content, text):
    """The error says what the file is, whatever its name."""
    (tmp_path / name).write_bytes(content)
    assert refusal(name) == f"{name} {text}".format(f".{name.partition('.')[2]}")


@pytest.mark.parametrize(
    ("part", "text"),
    [
        ("model/data.pkl", PYTORCH),
        ("a.txt", f"is a zip file without the config.json of a Keras model: {SAVE}"),
    ],
)
def test_other_zip_file_is_a_load_error(refusal, tmp_path, part, text):
    """PyTorch writes zip files, too."""
    with zipfile.ZipFile(tmp_path / "model.keras", "w") as archive:
        archive.writestr(part, b"")
    assert refusal("model.keras") == f"model.keras {text}"


def test_truncated_hdf5_file_is_a_load_error(keras, refusal, tmp_path):
    """A partial file is refused with its size."""
    _dense(keras).save(tmp_path / "model.h5")
    whole = (tmp_path / "model.h5").read_bytes()
    (tmp_path / "model.h5").write_bytes(whole[:9000])
    assert refusal("model.h5") == (
        "model.h5 is no whole .h5 file (9000 bytes): half copied, or damaged"
    )


def test_stateful_layer_is_a_load_error_until_it_is_set_to_false(
    keras, open_, refusal, tmp_path
):
    """The advice of the error works."""
    steps = keras.Input(batch_shape=(4, 5, 3), name="steps")
    recurrent = keras.layers.LSTM(2, stateful=True, name="memory")
    model = keras.Model(steps, recurrent(steps))
    model.save(tmp_path / "model.keras")
    assert refusal("model.keras") == (
        "layer 'memory' has stateful=True, so a request's answer depends on those "
        "before it: set the layer's stateful to False, and save the model again"
    )
    model.get_layer("memory").stateful = False
    model.save(tmp_path / "model.keras")
    rows = np.random.default_rng(0).random((4, 5, 3), np.float32)
    engine = open_("model.keras")
    for _ in range(2):
        found = engine.run({"steps": rows[:1]})["memory"]
        expected = model.predict(rows, verbose=0)[:1]
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_layer_over_free_sizes_is_a_load_error_until_they_are_fixed(
    keras, open_, refusal, tmp_path
):
    """The advice of the error works."""
    picture = keras.Input((None, None, 3))
    upsampling = keras.layers.UpSampling2D(interpolation="bilinear", name="twice")
    model = keras.Model(picture, upsampling(picture))
    model.save(tmp_path / "model.keras")
    assert refusal("model.keras") == (
        "can't be traced for any number of rows: layer 'twice': UpSampling2D: Using a "
        "symbolic `tf.Tensor` as a Python `bool` is not allowed. Give it fixed sizes: "
        "x = keras.Input((256, 256, 3)), with yours, then "
        "keras.Model(x, model(x)).save(...)"
    )
    fixed = keras.Input((8, 8, 3), name="picture")
    keras.Model(fixed, model(fixed)).save(tmp_path / "model.keras")
    pictures = np.random.default_rng(0).random((2, 8, 8, 3), np.float32)
    (found,) = open_("model.keras").run({"picture": pictures}).values()
    expected = model.predict(pictures, verbose=0)
    np.testing.assert_allclose(found, expected, atol=1e-6)
