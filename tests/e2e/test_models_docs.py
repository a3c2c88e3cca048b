"""docs/models.md's commands, run as they stand."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from app.settings import Settings
from app.settings.model_config import read_model_config
from testing.server import ROOT, serving

PAGE = (ROOT / "docs/models.md").read_text()
COMMANDS = re.findall(r"^\$ (.*)$", PAGE, re.M)
BLOCKS = re.findall(r"^```\w*\n(.*?)^```$", PAGE, re.M | re.S)


def run(command, **settings):
    environ = {k: v for k, v in os.environ.items() if not k.startswith("BASKET_")}
    environ |= settings
    # The page's .venv is the environment that these tests run in.
    command = command.replace(".venv/bin", str(Path(sys.executable).parent))
    return subprocess.run(
        command,
        shell=True,
        cwd=ROOT,
        env=environ,
        stdout=subprocess.PIPE,
        text=True,
        timeout=200,
        check=True,
    ).stdout


def block(start):
    (found,) = [each for each in BLOCKS if each.startswith(start)]
    return found


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """The folder that the page's export wrote, and what it printed."""
    folder = tmp_path_factory.mktemp("exported")
    return folder, run(f"{COMMANDS[1]} --output {folder}")


def test_the_page_has_the_commands_that_are_tested_here():
    """A command that no test runs does not stand in the page."""
    assert [
        ".venv/bin/flask --app wsgi models check digits",
        ".venv/bin/flask --app wsgi models export digits",
        COMMANDS[2],
        ".venv/bin/flask --app wsgi models quantize digits --int8 --data scans.npy",
    ] == COMMANDS
    assert COMMANDS[2].startswith('.venv/bin/python -c "import numpy, sklearn')


def without_numbers(text):
    return re.sub(r" +\d+\.\d+(e[+-]\d+)?", " N", text)


def test_the_check_prints_what_is_shown():
    """The demo model passes, with the lines of the page; only numbers may differ."""
    printed = run(COMMANDS[0])
    assert without_numbers(printed) == without_numbers(block("loading digits"))


def test_the_export_prints_what_is_shown(exported):
    """The docker command is the page's, for another folder."""
    folder, printed = exported
    shown = block("docker run").replace("/srv/basket/exported", str(folder.resolve()))
    assert printed.endswith(shown)


def test_the_export_is_served(exported, tmp_path):
    """A server with the export in its folder reads the samples as with the .keras."""
    folder, _ = exported
    seven = (ROOT / "samples/7.json").read_bytes()
    with serving(model_dir=str(folder)) as server:
        ready = server.request("GET", "/readyz").json()
        assert list(ready["models"]) == ["digits"]
        (given,) = server.request("POST", "/predict", seven).json()["predictions"]
    readme = (ROOT / "README.md").read_text()
    shown = re.search(r'^\{"predictions":.*\}$', readme, re.M)
    (wanted,) = json.loads(shown[0])["predictions"]
    assert given == pytest.approx(wanted, abs=1e-5)


def test_a_model_is_quantized_as_shown(tmp_path):
    """The page's rows are made, and its command prints its lines on a copy."""
    shutil.copytree(ROOT / "models/digits/1", tmp_path / "models/digits/1")
    scans = str(tmp_path / "scans.npy")
    run(COMMANDS[2].replace("scans.npy", scans))
    models = str(tmp_path / "models")
    printed = run(COMMANDS[3].replace("scans.npy", scans), BASKET_MODEL_DIR=models)
    printed = printed.replace(scans, "scans.npy").replace(models, "models")
    assert without_numbers(printed) == without_numbers(block("starting TensorFlow"))


def test_the_configuration_is_one(tmp_path):
    """The page's basket.toml is read without an error, and has every key there is."""
    (tmp_path / "basket.toml").write_text(block("max_batch_size = 32"))
    (tmp_path / "classes.json").write_text(json.dumps(["cat", "dog"]))
    config = read_model_config(tmp_path, Settings())
    assert config.settings.max_batch_size == 32
    assert config.settings.allowed_batch_sizes == (8, 32)
    assert dict(config.traffic) == {"stable": 90, "canary": 10}
    assert config.image is not None
