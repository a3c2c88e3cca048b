"""Commands of docs/model_commands.md, and the configuration of docs/settings.md."""

import json
import re
import shutil

import pytest

from app.settings import Settings
from app.settings.model_config import read_model_config
from testing.server import ROOT, free_port, serving
from tests.support import documents
from tests.support.documents import run

PAGE = ROOT / "docs" / "model_commands.md"
COMMANDS = documents.commands(PAGE)
BLOCKS = re.findall(r"^```\w*\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
BY_COMMAND = {
    found[1]: command
    for command in COMMANDS
    if (found := re.search(r" models (\w+)", command))
}


def block(start):
    (found,) = [each for each in BLOCKS if each.startswith(start)]
    return found


def without_numbers(text):
    return re.sub(r" +\d+\.\d+(e[+-]\d+)?", " N", text)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Return the folder that the page's export wrote, and what it printed."""
    folder = tmp_path_factory.mktemp("exported")
    return folder, run(f"{BY_COMMAND['export']} --output {folder}")


def test_every_command_is_tested():
    """The page has no other commands than those that run here."""
    assert list(BY_COMMAND) == ["fetch", "make", "check", "export", "quantize"]
    (scans,) = set(COMMANDS) - set(BY_COMMAND.values())
    assert scans.startswith('.venv/bin/python -c "import numpy, sklearn')


def test_fetched_model_is_served(tmp_path):
    """`models fetch` writes a model that takes pictures; here with random weights."""
    small = f"{BY_COMMAND['fetch']} --weights none --size 32"
    # The download of the classes' names fails at once, on any machine.
    no_network = {"no_proxy": "", "https_proxy": f"http://127.0.0.1:{free_port()}"}
    printed = run(small, BASKET_MODEL_DIR=str(tmp_path), **no_network)
    assert "BASKET_DEFAULT_MODEL=mobilenet_v2" in printed
    assert "ImageNet's names can't be downloaded" in printed
    with serving("--threads=4", model_dir=str(tmp_path)) as server:
        picture = (ROOT / "samples/7.png").read_bytes()
        headers = {"Content-Type": "image/png"}
        reply = server.request("POST", "/predict?top=1", picture, headers)
        assert reply.status == 400, reply.body
        reply = server.request("POST", "/predict", picture, headers)
        assert reply.status == 200
        assert len(reply.json()["predictions"][0]) == 1000


def test_big_model_is_made_and_served(tmp_path):
    """`models make big` saves a model, with its times, that then serves."""
    # How close it comes depends on what else the machine does.
    wanted = "--latency-ms 2 --width 512 --tolerance 100"
    small = BY_COMMAND["make"].replace("--latency-ms 300", wanted)
    printed = run(small, BASKET_MODEL_DIR=str(tmp_path))
    for rows in (1, 8, 16, 32):
        assert re.search(rf"batch of +{rows}: +[0-9.]+ ms", printed)
    assert "GiB of weights" in printed
    assert (tmp_path / "big" / "1" / "model.keras").is_file()
    (width,) = re.findall(r"layers of (\d+)", printed)
    with serving("--threads=4", model_dir=str(tmp_path)) as server:
        reply = server.predict([[1.0] * int(width)])
        assert reply.status == 200
        assert len(reply.json()["predictions"][0]) == 10


def test_check_prints_the_lines_shown():
    """The demo model passes, with the lines of the page; only numbers may differ."""
    printed = run(BY_COMMAND["check"])
    assert without_numbers(printed) == without_numbers(block("loading digits"))


def test_export_prints_the_command_shown(exported):
    """The docker command is the page's, for another folder."""
    folder, printed = exported
    shown = block("docker run").replace("/srv/basket/exported", str(folder.resolve()))
    assert printed.endswith(shown)


def test_exported_model_is_served(exported):
    """A server of the export's folder predicts what the README shows."""
    folder, _ = exported
    seven = (ROOT / "samples/7.json").read_bytes()
    with serving(model_dir=str(folder)) as server:
        ready = server.request("GET", "/readyz").json()
        assert list(ready["models"]) == ["digits"]
        (given,) = server.request("POST", "/predict", seven).json()["predictions"]
    readme = (ROOT / "README.md").read_text()
    shown = re.search(r'^\{"predictions":.*\}$', readme, re.M)
    (expected,) = json.loads(shown[0])["predictions"]
    assert given == pytest.approx(expected, abs=1e-5)


def test_quantize_prints_the_lines_shown(tmp_path):
    """The page's rows are made, and its command prints its lines on a copy."""
    shutil.copytree(ROOT / "models/digits/1", tmp_path / "models/digits/1")
    scans = str(tmp_path / "scans.npy")
    run(
        next(each for each in COMMANDS if "sklearn" in each).replace("scans.npy", scans)
    )
    models = str(tmp_path / "models")
    command = BY_COMMAND["quantize"].replace("scans.npy", scans)
    printed = run(command, BASKET_MODEL_DIR=models)
    printed = printed.replace(scans, "scans.npy").replace(models, "models")
    assert without_numbers(printed) == without_numbers(block("starting TensorFlow"))


def test_basket_toml_of_the_reference_is_valid(tmp_path):
    """The settings reference shows a basket.toml with every section, without error."""
    (toml,) = documents.blocks(ROOT / "docs" / "settings.md", "toml")
    (tmp_path / "basket.toml").write_text(toml)
    (tmp_path / "classes.json").write_text(json.dumps(["cat", "dog"]))
    config = read_model_config(tmp_path, Settings())
    assert config.settings.max_batch_size == 32
    assert config.settings.allowed_batch_sizes == (8, 32)
    assert dict(config.traffic) == {"stable": 90, "canary": 10}
    assert config.image is not None
