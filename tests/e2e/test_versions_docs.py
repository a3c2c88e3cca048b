"""The rollout that docs/versions.md shows, in its six commands."""

import json
import shutil

import pytest

from testing.server import ROOT, serving
from tests.support import documents
from tests.support.documents import run

PAGE = ROOT / "docs" / "versions.md"
COMMANDS = documents.commands(PAGE)[:6]


@pytest.fixture(name="here")
def _here(tmp_path):
    """Return a folder as a user's: the models, and a version to come."""
    demo = ROOT / "models" / "digits"
    shutil.copytree(demo / "1", tmp_path / "models" / "digits" / "1")
    for file in ("basket.toml", "classes.json"):
        shutil.copy(demo / file, tmp_path / "models" / "digits")
    shutil.copytree(demo / "1", tmp_path / "my_new_version")
    return tmp_path


def test_rollout_in_six_commands(here):
    """The copy of a version gets its first step, and is sent back by hand."""
    start, configure, add, look, send_back, force = COMMANDS
    assert start == "BASKET_CAPTURE_DIR=captured make serve"
    settings = {"model_dir": str(here / "models")}
    captured = str(here / "captured")
    with serving("--threads=4", capture_dir=captured, **settings) as server:
        labels = 'model="digits",result="proven",version="2"'
        proven = f"basket_promotions_total{{{labels}}}"
        run(configure, cwd=here)
        run(add, cwd=here)
        server.wait_until(lambda: server.metric(proven) == 1, 60)
        ready = json.loads(run(look, server.port, cwd=here))
        assert "problems" not in ready
        assert "digits" in ready["models"]
        folders = {
            "BASKET_CAPTURE_DIR": captured,
            "BASKET_MODEL_DIR": str(here / "models"),
        }

        def decide(command):
            command = command.replace("BASKET_CAPTURE_DIR=captured", "")
            return run(command, cwd=ROOT, **folders)

        assert "version 2 is sent back" in decide(send_back)
        sent_back = "it was sent back by hand: wrong labels"
        server.wait_until(lambda: sent_back in run(look, server.port, cwd=here), 30)
        assert "version 1 takes over without a proof" in decide(force)
        forced = "version 1 was promoted by force"
        server.wait_until(lambda: forced in run(look, server.port, cwd=here), 30)
