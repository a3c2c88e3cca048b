"""Model files of Keras 2 out of packages, beside tf_keras's answers."""

import re
import shutil
from contextlib import closing
from zipfile import ZipFile

import numpy as np
import pytest

from app.engines import open_engine
from app.errors import ModelLoadError
from app.settings import Settings
from testing.server import ROOT
from tests.support.marks import USES_TENSORFLOW

PACKAGES = ROOT / ".keras2-files"
OWN = "is code of yours: define it in service.py beside the file"
REFUSED = {
    "deepcut/cnn_without_ne_ab": "holds weights without a model",
    "mmsplice/Acceptor": f"layer 'ConvDNA' {OWN}",
}
SERVED = {"ethnicolr": 15, "fer": 1, "mmsplice": 5, "spliceai": 1}
# Of five with the same layers.
SKIPPED = re.compile("spliceai/spliceai[2-5]")
# Free lengths; SpliceAI answers the middle of 10,000 letters.
STEPS = {"mmsplice": 60, "spliceai": 10_010}
TOLERANCE = 1e-6

pytestmark = [
    *USES_TENSORFLOW,
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.skipif(
        not (PACKAGES / "done").exists(),
        reason="no .keras2-files; `make test` downloads them",
    ),
]


@pytest.fixture(scope="module")
def versions(tmp_path_factory):
    """The folder of each model file, by its package and stem."""
    folder, found = tmp_path_factory.mktemp("models"), {}
    for package in sorted(PACKAGES.glob("*.whl")):
        with ZipFile(package) as archive:
            for name in archive.namelist():
                if not (parts := re.search(r"/(\w+)(\.h5|\.hdf5)$", name)):
                    continue
                key = f"{package.name.partition('-')[0]}/{parts[1]}"
                found[key] = folder / key
                found[key].mkdir(parents=True)
                model = found[key] / f"model{parts[2]}"
                with archive.open(name) as file, model.open("wb") as target:
                    shutil.copyfileobj(file, target)
    return found


def _rows(package, shape):
    sizes = [size or STEPS[package] for size in shape[1:]]
    random = np.random.default_rng(0)
    if package == "ethnicolr":  # ids of pairs of letters
        return random.integers(0, 200, (2, *sizes)).astype(np.float32)
    return random.random((2, *sizes), np.float32)


def _served_and_expected(tf_keras, folder):
    (file,) = folder.iterdir()
    tf_keras.backend.clear_session()
    model = tf_keras.models.load_model(file, compile=False)
    rows = _rows(folder.parent.name, model.input_shape)
    with closing(open_engine(folder, Settings())) as engine:
        # Read as it is, not converted.
        assert engine.platform == "tensorflow_keras"
        (spec,) = engine.signatures["serving_default"].inputs
        (found,) = engine.run({spec.name: rows}).values()
    return found, model(rows, training=False).numpy()


@pytest.mark.parametrize("package", SERVED)
def test_file_of_a_package_answers_as_tf_keras_does(keras, versions, package):
    """Each file that needs no code of its package is read as it is."""
    tf_keras = pytest.importorskip("tf_keras")
    names = [name for name in versions if name.startswith(f"{package}/")]
    served = [name for name in names if name not in REFUSED and not SKIPPED.match(name)]
    assert len(served) == SERVED[package]
    for name in served:
        found, expected = _served_and_expected(tf_keras, versions[name])
        np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("name", REFUSED)
def test_file_that_needs_code_or_a_model_says_which(tf, versions, name):
    """Layers of a package come before the version of Keras."""
    with pytest.raises(ModelLoadError) as raised:
        open_engine(versions[name], Settings())
    assert REFUSED[name] in str(raised.value)
