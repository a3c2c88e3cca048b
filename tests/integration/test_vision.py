"""Pictures through real Keras models: the pixels, and the answers, are Keras's own."""

import base64
import io
import itertools
import json

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from app.codec import images
from app.commands import models_commands
from app.commands.architectures import ARCHITECTURES
from app.engines.base import TensorSpec
from app.image_config import ImageConfig
from app.settings import Settings
from tests.support.pictures import colours, form, picture, saved
from tests.support.server import serving

pytestmark = [
    pytest.mark.keras,
    # TensorFlow and Keras warn of their own ageing parts.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.timeout(240),
]
NPY = "application/x-npy"
SIZES = {"mobilenet_v2": 96, "densenet121": 224}


@pytest.fixture(scope="module")
def keras():
    # Not at the top: tests that are not run must not import TensorFlow.
    from app.engines.keras_tensorflow import keras  # noqa: PLC0415

    return keras


def _turned():
    """A picture as a phone stores it that is held upright, and the same upright."""
    exif = Image.Exif()
    exif[0x0112] = 6
    upright = colours(150, 230, seed=5)
    return saved(np.ascontiguousarray(np.rot90(upright)), exif=exif), saved(upright)


def _files():
    """Each kind of file, and the same picture as Keras is to read it."""
    files = {
        mode: saved(picture(mode, 300, 200, seed))
        for seed, mode in enumerate(("RGB", "L", "RGBA", "P"))
    }
    files["JPEG"] = saved(picture("RGB", 640, 480, seed=4), "JPEG")
    return {kind: (data, data) for kind, data in files.items()} | {"EXIF": _turned()}


FILES = _files()


def _by_keras(keras, name, data, interpolation="nearest"):
    """What keras.applications' users do with a picture: (height, width, 3)."""
    side = SIZES.get(name, 96)
    image = keras.utils.load_img(
        io.BytesIO(data), target_size=(side, side), interpolation=interpolation
    )
    module = getattr(keras.applications, _module(keras, name))
    return module.preprocess_input(keras.utils.img_to_array(image))


def _module(keras, name):
    """Keras's own module for an architecture."""
    if name.startswith("mobilenet_v3"):
        return "mobilenet_v3"  # which does not hold the functions themselves
    function = getattr(keras.applications, ARCHITECTURES[name].function)
    for module in vars(keras.applications):
        inside = getattr(keras.applications, module)
        if getattr(inside, function.__name__, None) is function:
            return module
    raise AssertionError(name)


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("interpolation", ["nearest", "bilinear"])
@pytest.mark.parametrize(
    "name", ["mobilenet_v2", "densenet121", "resnet50", "efficientnet_b0"]
)
def test_pixels_are_those_of_keras(keras, name, interpolation, kind):
    """What the model gets is what load_img and preprocess_input make of the file."""
    side = SIZES.get(name, 96)
    scale = ARCHITECTURES[name].scale
    config = ImageConfig((side, side), "RGB", scale, interpolation, ())
    spec = TensorSpec("x", np.dtype(np.float32), config.shape())
    data, upright = FILES[kind]
    (row,) = images.decode([data], config, spec, "picture")
    expected = _by_keras(keras, name, upright, interpolation)
    np.testing.assert_allclose(row, expected, atol=1e-3)
    assert np.ptp(row) > 0.5


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_each_architecture_is_scaled_as_keras_does(keras, name):
    """The table's scale is the preprocess_input of the architecture's own module."""
    pixels = colours(8, 8)
    scale = ARCHITECTURES[name].scale
    config = ImageConfig((8, 8), "RGB", scale, "nearest", ())
    spec = TensorSpec("x", np.dtype(np.float32), (8, 8, 3))
    (row,) = images.decode([saved(pixels)], config, spec, "picture")
    module = getattr(keras.applications, _module(keras, name))
    expected = module.preprocess_input(pixels.astype(np.float32))
    np.testing.assert_allclose(row, expected, atol=1e-3)


def _tell_apart(keras, model, rows):
    """Give a model of random weights statistics and scores that differ by picture.

    As it is made, it answers 0.001 for each of 1000 classes whatever it sees.
    """
    for layer in model.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.momentum = 0.0
    model(rows, training=True)
    last = model.layers[-1]
    kernel = last.get_weights()[0] * 20
    seen = keras.Model(model.input, last.input)(rows).numpy()
    # Less what all pictures have in common.
    last.set_weights([kernel, -seen.mean(axis=0) @ kernel])


@pytest.fixture(scope="module")
def fetched(tmp_path_factory, keras):
    """Both models as `models fetch --weights none` makes them, then told to see."""
    folder = tmp_path_factory.mktemp("models")
    group = models_commands(Settings(model_dir=folder))
    keras.utils.set_random_seed(3)
    models = {}
    for name, side in SIZES.items():
        command = ["fetch", name, "--weights", "none", "--size", str(side)]
        result = CliRunner().invoke(group, command)
        assert result.exit_code == 0, result.output
        file = folder / name / "1" / "model.keras"
        model = models[name] = keras.models.load_model(file, compile=False)
        seen = [_by_keras(keras, name, upright) for _, upright in FILES.values()]
        _tell_apart(keras, model, np.stack(seen))
        model.save(file)
    config = folder / "mobilenet_v2" / "basket.toml"
    lines = [line for line in config.read_text().splitlines() if "classes" not in line]
    config.write_text("\n".join([*lines, 'classes = "classes.json"', ""]))
    index = {str(place): [f"n{place:08}", f"class {place}"] for place in range(1000)}
    (folder / "mobilenet_v2" / "classes.json").write_text(json.dumps(index))
    return folder, models


@pytest.fixture(scope="module")
def server(fetched):
    settings = {"default_model": "mobilenet_v2", "max_batch_size": "8"}
    with serving("--threads=8", model_dir=str(fetched[0]), **settings) as running:
        yield running


@pytest.fixture(scope="module")
def direct(fetched, keras):
    """The scores of each file by the model itself, called with Keras's pixels."""
    return {
        name: {
            kind: model(_by_keras(keras, name, upright)[np.newaxis]).numpy()[0]
            for kind, (_, upright) in FILES.items()
        }
        for name, model in fetched[1].items()
    }


@pytest.mark.parametrize("name", SIZES)
def test_the_test_can_fail(direct, name):
    """The models' answers differ by picture: any two get clearly other scores."""
    for one, other in itertools.combinations(direct[name].values(), 2):
        assert np.abs(one - other).max() > 0.02


@pytest.mark.parametrize("kind", FILES)
def test_answers_are_those_of_the_model(server, direct, kind):
    """POST /predict scores a picture as the model does, called directly."""
    body, headers = form(FILES[kind][0])
    reply = server.request("POST", "/predict", body, {**headers, "Accept": NPY})
    assert reply.status == 200, reply.body
    (scores,) = np.load(io.BytesIO(reply.body))
    np.testing.assert_allclose(scores, direct["mobilenet_v2"][kind], atol=1e-3)


def test_the_best_classes_are_those_of_the_model(server, direct):
    """`?top=5` names the five classes that the model itself finds best, in order."""
    body, headers = form(FILES["RGB"][0])
    answers = server.request("POST", "/predict?top=5", body, headers).json()
    scores = direct["mobilenet_v2"]["RGB"]
    best = np.argsort(-scores)[:5]
    assert [each["class_id"] for each in answers] == [f"n{place:08}" for place in best]
    assert [each["class_name"] for each in answers] == [f"class {i}" for i in best]
    np.testing.assert_allclose(
        [each["score"] for each in answers], scores[best], atol=1e-3
    )
    (first,) = answers[:1]
    assert server.request("POST", "/predict", body, headers).json() == first


def test_b64_pictures_over_v1(server, direct):
    """V1 takes pictures as b64, named or not, and answers with the model's scores."""
    kinds = ["RGB", "EXIF", "L"]
    instances = [{"b64": base64.b64encode(FILES[kind][0]).decode()} for kind in kinds]
    expected = [direct["densenet121"][kind] for kind in kinds]
    path = "/v1/models/densenet121:predict"
    metadata = server.request("GET", "/v1/models/densenet121/metadata").json()
    signature = metadata["metadata"]["signature_def"]["signature_def"]
    (name,) = signature["serving_default"]["inputs"]
    for body in (
        {"instances": instances},
        {"instances": [{name: instance} for instance in instances]},
    ):
        reply = server.request("POST", path, json.dumps(body).encode())
        assert reply.status == 200, reply.body
        np.testing.assert_allclose(reply.json()["predictions"], expected, atol=1e-3)
