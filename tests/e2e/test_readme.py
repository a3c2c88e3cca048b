"""The commands of the README."""

import json
import os
import re
import shlex
import shutil
import signal

import pytest

from testing.server import (
    ROOT,
    Server,
    free_port,
    launch,
    serving,
    simulated_models,
    wait_until,
)
from tests.support import documents
from tests.support.browser import browsing, needs_chromium
from tests.support.documents import run
from tests.support.page import Page

PAGE = ROOT / "README.md"
(SCRIPT,) = documents.blocks(PAGE, "python")
README = PAGE.read_text()
COMMANDS = documents.commands(PAGE)
SERVE, PICTURE, NUMBERS, SERVE_FILE, PREDICT_FILE, *REST = COMMANDS
COPY, PREDICT_MINE, READY, SERVE_MINE = REST
ANSWERS = [json.loads(block) for block in documents.blocks(PAGE, "json")]
SETUPS = re.findall(r"\| `((?:BASKET_\w+=\w+ )?gunicorn wsgi:app[^`]*)` \|", README)


@pytest.fixture(scope="module")
def only_digits(tmp_path_factory):
    """Return a folder with the models of a fresh clone."""
    folder = tmp_path_factory.mktemp("clone") / "models"
    folder.mkdir()
    (folder / "digits").symlink_to(ROOT / "models" / "digits")
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory, only_digits):
    """Run `make serve` on a port of its own."""
    port = free_port()
    log = tmp_path_factory.mktemp("serve") / "log"
    command = [*SERVE.split(), f"ARGS=--bind 127.0.0.1:{port}"]
    process = launch(command, log, own_session=True, model_dir=str(only_digits))
    server = Server(process, port, log)
    server.wait_until_ready()
    yield server
    # As Ctrl-C does: the signal reaches make and Gunicorn alike.
    os.killpg(process.pid, signal.SIGINT)
    process.wait(60)


def test_make_serve_logs_the_line_to_wait_for(made):
    """The log has the line that the README shows."""
    (line,) = re.findall(r"the log says `(.*?)`", README)
    assert line in made.log.read_text()


@needs_chromium
def test_address_shows_the_page_in_a_browser(made):
    """The console has no error, and no other host is asked."""
    assert "Open http://127.0.0.1:8000 in a browser" in README
    with browsing() as browser:
        page = Page(browser, made).opened()
        assert page.text("#server") == "1 model ready"
        assert page.problems() == []


def test_picture_gets_the_answer_shown(made):
    """The README's curl with a picture gets the class and the score shown."""
    answer, shown = json.loads(run(PICTURE, made.port)), dict(ANSWERS[0])
    assert answer.pop("score") == pytest.approx(shown.pop("score"), abs=1e-5)
    assert answer == shown == {"class_id": "7", "class_name": "seven"}


def test_numbers_get_the_answer_shown(made):
    """The README's curl with numbers gets the probabilities shown."""
    (probabilities,) = json.loads(run(NUMBERS, made.port))["predictions"]
    (shown,) = ANSWERS[1]["predictions"]
    assert probabilities == pytest.approx(shown, abs=1e-5)


@pytest.mark.parametrize("digit", range(10))
def test_each_sample_is_classified_right(made, digit):
    """The model finds each sample's digit, in numbers and in the picture."""
    sample = ROOT / "samples" / f"{digit}.json"
    reply = made.request("POST", "/predict", sample.read_bytes())
    (probabilities,) = reply.json()["predictions"]
    assert probabilities.index(max(probabilities)) == digit
    picture = sample.with_suffix(".png").read_bytes()
    headers = {"Content-Type": "image/png"}
    reply = made.request("POST", "/predict", picture, headers)
    assert reply.json()["class_id"] == str(digit)


@pytest.fixture(name="saved", scope="module")
def _saved(tmp_path_factory):
    """Return the file that the README's script saves."""
    folder = tmp_path_factory.mktemp("saved")
    run(f"python -c {shlex.quote(SCRIPT)}", cwd=folder)
    return folder / "my.keras"


def test_file_is_served_from_a_folder_with_nothing_else(tmp_path, saved):
    """`make -C` takes a path relative to the shell's folder."""
    port, folder = free_port(), tmp_path / "a folder"
    folder.mkdir()
    shutil.copy(saved, folder)
    log = tmp_path / "log"
    command = SERVE_FILE.replace("make", f"make -C {ROOT}")
    process = launch(
        [*command.split(), f"ARGS=--bind 127.0.0.1:{port}"],
        log,
        own_session=True,
        root=folder,
        environ={"PWD": str(folder)},
    )
    server = Server(process, port, log)
    try:
        server.wait_until_ready()
        assert json.loads(run(PREDICT_FILE, port)) == ANSWERS[2]
        assert list(server.request("GET", "/readyz").json()["models"]) == ["my"]
    finally:
        os.killpg(process.pid, signal.SIGINT)
        process.wait(60)


def test_own_model_is_found_and_served(made, only_digits, saved):
    """A running server finds a model that is saved as the README says."""
    (name,) = re.findall(r"BASKET_DEFAULT_MODEL=(\w+) make serve", SERVE_MINE)
    clone = only_digits.parent
    shutil.copy(saved, clone)

    def models():
        return made.request("GET", "/readyz").json()["models"]

    try:
        run(COPY, cwd=clone)
        wait_until(lambda: name in models(), 60)
        assert json.loads(run(PREDICT_MINE, made.port)) == ANSWERS[2]
        ready = json.loads(run(READY, made.port))
        (shown,) = ready["models"][name]["inputs"]
        assert (shown["name"], shown["shape"]) == ("prices", [2])
    finally:
        shutil.rmtree(only_digits / name)
        wait_until(lambda: name not in models(), 60)


@pytest.mark.parametrize("command", SETUPS)
def test_each_set_up_answers(command, tmp_path):
    """Each of the four set-ups starts with its command and answers right."""
    assert len(SETUPS) == 4
    before, _, arguments = command.partition("gunicorn wsgi:app")
    settings = dict(re.findall(r"BASKET_(\w+)=(\w+)", before))
    # On a simulated device, as in the README's figures.
    device = {"base_ms": 1, "input_shape": [2], "outputs": 2}
    settings["model_dir"] = simulated_models(tmp_path, m=device)
    with serving(*arguments.split(), **settings) as server:
        assert server.predict([[3, 7]]).json() == {"predictions": [[3, 7]]}
