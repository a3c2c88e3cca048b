"""Images through real Keras models: pixels and predictions equal Keras's own."""

import base64
import io
import itertools
import json
import os
import re
import shutil

import numpy as np
import pytest
from PIL import Image

from app.codec.pictures import images
from app.commands.new_models.architectures import ARCHITECTURES
from app.engines import open_engine
from app.engines.base import TensorSpec
from app.settings import Settings
from app.settings.image_config import ImageConfig
from testing.keras_models import spread_scores
from testing.pictures import colors, form, picture, saved
from testing.server import ROOT, serving
from tests.support.commands import run_models

pytestmark = [
    pytest.mark.keras,
    # TensorFlow and Keras use deprecated functions.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
NPY = "application/x-npy"
VISION = ROOT / "docs" / "vision.md"
SIZES = {"mobilenet_v2": 96, "densenet121": 224, "resnet50": 96}
# The second takes BGR. SERVED_MODELS="mobilenet_v2 densenet121" takes a minute.
SERVED = os.environ.get("SERVED_MODELS", "mobilenet_v2 resnet50").split()


@pytest.fixture(scope="module")
def applications():
    # Not at the top: collecting tests must not import TensorFlow.
    from app.commands.new_models import applications  # noqa: PLC0415

    return applications


def _rotated():
    """Return an image with an EXIF orientation, and the same image upright."""
    exif = Image.Exif()
    exif[0x0112] = 6
    upright = colors(150, 230, seed=5)
    return saved(np.ascontiguousarray(np.rot90(upright)), exif=exif), saved(upright)


def _files():
    """Return files of each kind, each with the file that Keras reads."""
    files = {
        mode: saved(picture(mode, 300, 200, seed))
        for seed, mode in enumerate(("RGB", "L", "RGBA", "P"))
    }
    files["JPEG"] = saved(picture("RGB", 640, 480, seed=4), "JPEG")
    return {kind: (data, data) for kind, data in files.items()} | {"EXIF": _rotated()}


FILES = _files()


def _by_keras(keras, name, data, interpolation="nearest"):
    """Load and preprocess an image with Keras: (height, width, 3)."""
    side = SIZES.get(name, 96)
    image = keras.utils.load_img(
        io.BytesIO(data), target_size=(side, side), interpolation=interpolation
    )
    module = getattr(keras.applications, _module(keras, name))
    return module.preprocess_input(keras.utils.img_to_array(image))


def _module(keras, name):
    """Return the name of Keras's module for an architecture."""
    if name.startswith("mobilenet_v3"):
        return "mobilenet_v3"  # the module has no functions for the architectures
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
    """A float32 input gets what load_img and preprocess_input return."""
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
def test_scale_of_each_architecture_is_that_of_keras(keras, name):
    """The scale of an architecture is that of its preprocess_input."""
    pixels = colors(8, 8)
    scale = ARCHITECTURES[name].scale
    config = ImageConfig((8, 8), "RGB", scale, "nearest", ())
    spec = TensorSpec("x", np.dtype(np.float32), (8, 8, 3))
    (row,) = images.decode([saved(pixels)], config, spec, "picture")
    np.testing.assert_allclose(row, _preprocessed(keras, name, pixels), atol=1e-3)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_graph_of_each_architecture_scales_as_keras_does(keras, applications, name):
    """The layers before a fetched model equal its preprocess_input."""
    pixels = colors(8, 8)
    image = keras.Input((8, 8, 3), dtype="uint8")
    model = keras.Model(image, applications.scaled(image, ARCHITECTURES[name].scale))
    (row,) = model(pixels[np.newaxis]).numpy()
    assert row.dtype == np.float32
    np.testing.assert_allclose(row, _preprocessed(keras, name, pixels), atol=1e-3)


def _preprocessed(keras, name, pixels):
    module = getattr(keras.applications, _module(keras, name))
    return module.preprocess_input(pixels.astype(np.float32))


def _bare(keras, name):
    """Return the model of keras.applications, with weights that distinguish images."""
    side = SIZES[name]
    make = getattr(keras.applications, ARCHITECTURES[name].function)
    model = make(input_shape=(side, side, 3), weights=None)
    seen = [_by_keras(keras, name, upright) for _, upright in FILES.values()]
    spread_scores(keras, model, np.stack(seen))
    return model


def _weights(model, name, folder):
    """Write the weights in one of the two formats of Keras."""
    if name == "mobilenet_v2":
        # The older format, which Keras downloads.
        file = folder / f"{name}.h5"
        model.save(file)
    else:
        file = folder / f"{name}.weights.h5"
        model.save_weights(file)
    return file


def _fetch(folder, bare, name, scratch):
    """Run `models fetch` with the weights of the bare model."""
    weights = _weights(bare, name, scratch)
    _command(folder, "fetch", name, "--weights", weights, "--size", SIZES[name])


def _command(folder, *args):
    status, output = run_models(folder, *args)
    assert status == 0, output


def _name_classes(model):
    """Write names of classes, as ImageNet's can't always be downloaded."""
    config = model / "basket.toml"
    lines = [line for line in config.read_text().splitlines() if "classes" not in line]
    config.write_text("\n".join([*lines, 'classes = "classes.json"', ""]))
    index = {str(place): [f"n{place:08}", f"class {place}"] for place in range(1000)}
    (model / "classes.json").write_text(json.dumps(index))


@pytest.fixture(scope="module")
def fetched(tmp_path_factory, keras):
    """Return a folder with fetched and exported models, and the bare models."""
    folder = tmp_path_factory.mktemp("models")
    scratch = tmp_path_factory.mktemp("scratch")
    keras.utils.set_random_seed(3)
    models = {name: _bare(keras, name) for name in SERVED}
    for name, bare in models.items():
        _fetch(folder, bare, name, scratch)
    _name_classes(folder / "mobilenet_v2")
    _command(folder, "export", "mobilenet_v2", "--output", scratch)
    exported = shutil.copytree(scratch / "mobilenet_v2", folder / "exported")
    for file in ("basket.toml", "classes.json"):
        shutil.copy(folder / "mobilenet_v2" / file, exported)
    return folder, models


@pytest.fixture(scope="module")
def server(fetched):
    settings = {"default_model": "mobilenet_v2", "max_batch_size": "8"}
    with serving("--threads=8", model_dir=str(fetched[0]), **settings) as running:
        yield running


@pytest.fixture(scope="module")
def direct(fetched, keras):
    """Return the scores of each file by the bare models, with Keras's pixels."""
    scores = {}
    for name, model in fetched[1].items():
        seen = [_by_keras(keras, name, upright) for _, upright in FILES.values()]
        scores[name] = dict(zip(FILES, model(np.stack(seen)).numpy(), strict=True))
    return scores


def _differ(scores):
    pairs = itertools.combinations(scores, 2)
    return all(np.abs(one - other).max() > 0.02 for one, other in pairs)


@pytest.mark.parametrize("name", SERVED)
def test_scores_differ_by_image(direct, name):
    """Any two images get clearly different scores, so that other tests can fail."""
    assert _differ(direct[name].values())


@pytest.mark.parametrize("kind", FILES)
def test_predict_equals_the_direct_call(server, direct, kind):
    """POST /predict scores an image as the model does, called directly."""
    body, headers = form(FILES[kind][0])
    response = server.request("POST", "/predict", body, {**headers, "Accept": NPY})
    assert response.status == 200, response.body
    (scores,) = np.load(io.BytesIO(response.body))
    np.testing.assert_allclose(scores, direct["mobilenet_v2"][kind], atol=1e-3)


def test_top_classes_equal_the_direct_call(server, direct):
    """?top=5 names the five best classes of the model, in order."""
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


def _scores(server, model, *rows):
    body = json.dumps({"instances": rows}).encode()
    response = server.request("POST", f"/v1/models/{model}:predict", body)
    assert response.status == 200, response.body
    return np.array(response.json()["predictions"])


def _b64(data):
    return {"b64": base64.b64encode(data).decode()}


@pytest.mark.parametrize("name", SERVED)
def test_base64_images_over_v1(server, direct, name):
    """V1 takes base64 images, named or not, with the model's scores."""
    instances = [_b64(data) for data, _ in FILES.values()]
    expected = [direct[name][kind] for kind in FILES]
    metadata = server.request("GET", f"/v1/models/{name}/metadata").json()
    signature = metadata["metadata"]["signature_def"]["signature_def"]
    (field,) = signature["serving_default"]["inputs"]
    assert (field, *signature["serving_default"]["outputs"]) == ("image", "predictions")
    for rows in (instances, [{field: instance} for instance in instances]):
        np.testing.assert_allclose(_scores(server, name, *rows), expected, atol=1e-3)


def test_exported_model_equals_the_fetched_model(server, direct):
    """An exported SavedModel gives the fetched model's scores."""
    instances = [_b64(data) for data, _ in FILES.values()]
    exported = _scores(server, "exported", *instances)
    fetched = _scores(server, "mobilenet_v2", *instances)
    np.testing.assert_allclose(exported, fetched, atol=1e-5)
    expected = [direct["mobilenet_v2"][kind] for kind in FILES]
    np.testing.assert_allclose(exported, expected, atol=1e-3)


def test_fetched_model_takes_pixels_as_json(server, keras, direct):
    """As JSON a fetched model takes values from 0 to 255; fractions are refused."""
    image = keras.utils.load_img(io.BytesIO(FILES["RGB"][1]), target_size=(96, 96))
    pixels = keras.utils.img_to_array(image, dtype="uint8").tolist()
    (scores,) = _scores(server, "mobilenet_v2", pixels)
    np.testing.assert_allclose(scores, direct["mobilenet_v2"]["RGB"], atol=1e-3)
    pixels[0][0][0] = 0.5
    body = json.dumps({"instances": [pixels]}).encode()
    response = server.request("POST", "/predict", body)
    assert response.status == 400
    assert "instances[0][0][0][0]" in response.json()["error"]


def test_every_scale_can_be_exported(keras, applications, tmp_path):
    """Each scaling in the graph is the same in the file and in its export."""
    image = keras.Input((8, 9, 3), dtype="uint8", name="image")
    scales = {each.scale for each in ARCHITECTURES.values()}
    outputs = [applications.scaled(image, scale) for scale in sorted(scales)]
    assert len(outputs) == 4
    folder = tmp_path / "m" / "1"
    folder.mkdir(parents=True)
    keras.Model(image, outputs).save(folder / "model.keras")
    _command(tmp_path, "export", "m", "--output", tmp_path / "out")
    pixels = {"image": colors(9, 8)[np.newaxis]}
    given = [
        open_engine(version, Settings()).run(pixels)
        for version in (folder, tmp_path / "out" / "m" / "1")
    ]
    assert len(given[0]) == 4
    for name, values in given[0].items():
        np.testing.assert_allclose(given[1][name], values, atol=1e-5)


def test_example_in_the_docs_scales_in_the_graph(keras, tmp_path, monkeypatch):
    """The example in vision.md puts the scaling into a model."""
    (lines,) = re.findall(r"```python\n(.*?)```", VISION.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    image = keras.Input((8, 9, 3))
    model = keras.Model(image, keras.layers.Dense(4)(image))
    exec(lines, {"keras": keras, "model": model})
    (file,) = tmp_path.glob("models/till/2/*")
    inside = keras.models.load_model(file, compile=False)
    pixels = colors(9, 8)[np.newaxis]
    assert inside.input.dtype == "uint8"
    expected = model(_preprocessed(keras, "mobilenet_v2", pixels)).numpy()
    np.testing.assert_allclose(inside(pixels).numpy(), expected, atol=1e-5)
