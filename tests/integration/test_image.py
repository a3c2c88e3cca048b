"""The image of the Dockerfile, built by buildah and run without an engine."""

import re
import subprocess
from pathlib import Path

import pytest

from testing.server import ROOT
from tests.support import image as images

pytestmark = [
    pytest.mark.skipif(bool(images.missing()), reason=images.missing() or "unused"),
    # Installing TensorFlow takes minutes.
    pytest.mark.timeout(1200),
]
# Files that lie about, and must not get in.
STRAYS = ("app/notes.txt", "app/codec/.hidden.py", "app/web/page/files/app.js.map")


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """Build the image from what git tracks, and stray files."""
    base = images.base()
    if base is None:
        pytest.skip("buildah has no image python:3.11-slim and can't pull it")
    context = tmp_path_factory.mktemp("context")
    images.copy_tracked(context)
    for stray in STRAYS:
        (context / stray).touch()
    with images.built(context, base) as built:
        yield built


def files_of(image, folder):
    root = image.root / folder
    found = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return {str(path) for path in found}


def test_image_has_the_application_and_its_bytecode(image):
    """No stray file, training script or .proto gets in; each module has bytecode."""
    listed = ["git", "ls-files", "app", "models", "wsgi.py", "gunicorn.conf.py"]
    tracked = subprocess.run(
        listed, cwd=ROOT, capture_output=True, text=True, check=True
    )
    expected = {
        path
        for path in tracked.stdout.split()
        if path != "models/digits/train.py"
        and not path.startswith("app/protocols/protos/")
    }
    found = files_of(image, "basket")
    bytecode = {path for path in found if path.endswith(".pyc")}
    assert found - bytecode == expected
    named = {
        re.sub(r"__pycache__/(.*)\.cpython-\d+\.pyc$", r"\1.py", b) for b in bytecode
    }
    assert named == {path for path in expected if path.endswith(".py")}


def test_image_leaves_out_what_serving_does_not_need(image):
    """No headers of TensorFlow, no libclang; the standard library has bytecode."""
    packages = image.run(
        "import gunicorn, os; print(os.path.dirname(gunicorn.__path__[0]))"
    )
    names = {path.name for path in (image.root / packages[1:]).iterdir()}
    assert "tensorflow" in names
    assert not names & {"clang", "libclang"}
    assert not (image.root / packages[1:] / "tensorflow" / "include").exists()
    cached = image.run("import json; print(json.__cached__)")
    assert (image.root / cached[1:]).is_file()


def test_container_serves_read_only_without_rights(image, tmp_path):
    """It predicts as process 1's child without capabilities, and SIGTERM ends it."""
    with image.running(tmp_path / "log") as server:
        server.wait_until_ready()
        status = Path(f"/proc/{images.init_of(server)}/status").read_text()
        assert re.search(r"^NSpid:\s+\d+\s+1$", status, re.M)
        (uid,) = set(re.findall(r"\d+", re.search(r"^Uid:.*$", status, re.M)[0]))
        assert int(uid) > 0
        assert set(re.findall(r"^Cap\w+:\s+(\w+)$", status, re.M)) == {"0" * 16}
        body = (ROOT / "samples" / "7.json").read_bytes()
        reply = server.request("POST", "/predict", body)
        (probabilities,) = reply.json()["predictions"]
        assert max(range(10), key=probabilities.__getitem__) == 7
        images.signal_init(server)
        assert server.process.wait(30) == 0


@pytest.mark.parametrize("moment", ["init starts", "Gunicorn starts"])
def test_sigterm_right_after_the_start_ends_the_container(image, tmp_path, moment):
    """It is not lost while Gunicorn has no handler for it."""
    with image.running(tmp_path / "log") as server:
        init = images.init_of(server)
        if moment == "Gunicorn starts":
            images.child_of(init)
        images.signal_init(server)
        server.process.wait(60)
