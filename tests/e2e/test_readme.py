"""The README's commands, run as they stand."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

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

README = (ROOT / "README.md").read_text()
COMMANDS = re.findall(r"^\$ (.*)$", README, re.M)
# The predictions that it shows: of the 7, and of a model of yours.
SHOWN = [
    json.loads(line)["predictions"]
    for line in re.findall(r'^\{"predictions":.*\}$', README, re.M)
]


@pytest.fixture(scope="module")
def only_digits(tmp_path_factory):
    """The models of a fresh clone, whatever a developer has made since."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "digits").symlink_to(ROOT / "models" / "digits")
    return str(folder)


@pytest.fixture(scope="module")
def made(tmp_path_factory, only_digits):
    """`make serve` in a process, with an address of its own."""
    port = free_port()
    log = tmp_path_factory.mktemp("serve") / "log"
    command = ["make", "serve", f"ARGS=--bind 127.0.0.1:{port}"]
    process = launch(command, log, own_session=True, model_dir=only_digits)
    server = Server(process, port, log)
    server.wait_until_ready()
    yield server
    # As Ctrl-C does: the signal reaches make and Gunicorn alike.
    os.killpg(process.pid, signal.SIGINT)
    process.wait(60)


def _shell(command, port, timeout_s=280, cwd=ROOT):
    environ = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    return subprocess.run(
        command.replace("127.0.0.1:8000", f"127.0.0.1:{port}"),
        shell=True,
        cwd=cwd,
        env=environ,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=True,
    ).stdout


def test_the_readme_has_the_commands_that_are_tested_here():
    """A command that no test runs does not stand in the README."""
    assert COMMANDS == [
        "make serve",
        'curl -F "file=@samples/7.png" http://127.0.0.1:8000/predict',
        "curl -d @samples/7.json http://127.0.0.1:8000/predict",
        "mkdir -p models/mine/1",
        "curl -d '{\"instances\": [[1, 2]]}' "
        "http://127.0.0.1:8000/v1/models/mine:predict",
        "curl http://127.0.0.1:8000/readyz",
        "BASKET_DEFAULT_MODEL=mine make serve",
        ".venv/bin/flask --app wsgi models fetch mobilenet_v2",
        ".venv/bin/flask --app wsgi models make big --latency-ms 300",
        "BASKET_DEFAULT_MODEL=big make serve",
        "make test",
        "make lint",
    ]


def test_the_curl_answers_the_right_digit(made):
    """`make serve` and the README's curl read a handwritten 7."""
    (curl,) = [command for command in COMMANDS if "-d @samples/7.json" in command]
    (probabilities,) = json.loads(_shell(curl, made.port))["predictions"]
    assert probabilities.index(max(probabilities)) == 7
    (expected,) = SHOWN[0]
    assert probabilities == pytest.approx(expected, abs=1e-5)


def test_the_curl_with_the_picture_answers_its_name(made):
    """The README's picture of a 7 is answered as the README shows it."""
    (curl,) = [command for command in COMMANDS if command.startswith("curl -F")]
    answer = json.loads(_shell(curl, made.port))
    (shown,) = re.findall(r'^\{"class_id".*\}$', README, re.M)
    expected = json.loads(shown)
    assert answer.pop("score") == pytest.approx(expected.pop("score"), abs=1e-5)
    assert answer == expected == {"class_id": "7", "class_name": "seven"}


@pytest.mark.parametrize("digit", range(10))
def test_each_sample_is_read_right(made, digit):
    """Each sample's digit is the one that the model finds, in numbers and pictures."""
    sample = ROOT / "samples" / f"{digit}.json"
    reply = made.request("POST", "/predict", sample.read_bytes())
    (probabilities,) = reply.json()["predictions"]
    assert probabilities.index(max(probabilities)) == digit
    picture = sample.with_suffix(".png").read_bytes()
    headers = {"Content-Type": "image/png"}
    reply = made.request("POST", "/predict", picture, headers)
    assert reply.json()["class_id"] == str(digit)


def test_the_fetched_model_is_served(tmp_path):
    """`models fetch` writes a model that takes pictures; here with random weights."""
    (command,) = [each for each in COMMANDS if "models fetch" in each]
    small = f"{command} --weights none --size 32"
    said = _shell(f"BASKET_MODEL_DIR={tmp_path} {small}", 0)
    assert "BASKET_DEFAULT_MODEL=mobilenet_v2" in said
    with serving("--threads=4", model_dir=str(tmp_path)) as server:
        picture = (ROOT / "samples/7.png").read_bytes()
        headers = {"Content-Type": "image/png"}
        reply = server.request("POST", "/predict?top=1", picture, headers)
        named = (tmp_path / "mobilenet_v2" / "classes.json").exists()
        assert reply.status == (200 if named else 400), reply.body
        reply = server.request("POST", "/predict", picture, headers)
        assert reply.status == 200
        assert named or len(reply.json()["predictions"][0]) == 1000


def test_a_model_of_yours_is_served(tmp_path):
    """A model that is saved as the README says is found by a running server."""
    (mkdir,) = [command for command in COMMANDS if command.startswith("mkdir")]
    (ask,) = [command for command in COMMANDS if "/mine:predict" in command]
    (curl,) = [command for command in COMMANDS if command.endswith("/readyz")]
    (script,) = re.findall(r"^```python\n(.*?)^```$", README, re.M | re.S)
    (name,) = re.findall(r"BASKET_DEFAULT_MODEL=(mine) make serve", README)
    models = tmp_path / "models"
    models.mkdir()
    (models / "digits").symlink_to((ROOT / "models" / "digits").resolve())
    with serving("--threads=4", model_dir=str(models)) as server:
        _shell(mkdir, server.port, cwd=tmp_path)
        _shell(f"python -c {shlex.quote(script)}", server.port, cwd=tmp_path)
        wait_until(
            lambda: name in server.request("GET", "/readyz").json()["models"], 60
        )
        assert json.loads(_shell(ask, server.port))["predictions"] == SHOWN[1]
        said = json.loads(_shell(curl, server.port))
        (shown,) = said["models"][name]["inputs"]
        assert (shown["name"], shown["shape"]) == ("prices", [2])


def test_the_error_that_is_shown_is_the_error_that_is_sent(made):
    """The README's example of an error is what such a request gets."""
    rows = json.loads((ROOT / "samples/7.json").read_text())["instances"] * 2
    rows[1] = [row[:7] if place == 0 else row for place, row in enumerate(rows[1])]
    assert f"`{made.predict(rows).body.decode()}`".replace('":"', '": "') in README


def test_the_log_says_when_it_is_ready(made):
    """The log has the line that the README tells to wait for."""
    (line,) = re.findall(r"the log says `(.*?)`", README)
    assert line in made.log.read_text()


SETUPS = re.findall(r"\| `((?:BASKET_\w+=\w+ )?gunicorn wsgi:app[^`]*)` \|", README)


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


def test_the_big_model_is_made_and_served(tmp_path):
    """`models make big` saves a model, with its times, that then serves."""
    (command,) = [each for each in COMMANDS if "make big" in each]
    # How close it comes depends on what else the machine does.
    wanted = "--latency-ms 2 --width 1024 --tolerance 100"
    small = command.replace("--latency-ms 300", wanted)
    said = _shell(f"BASKET_MODEL_DIR={tmp_path} {small}", 0)
    for rows in (1, 8, 16, 32):
        assert re.search(rf"batch of +{rows}: +[0-9.]+ ms", said)
    assert "GiB of weights" in said
    assert (tmp_path / "big" / "1" / "model.keras").is_file()
    (width,) = re.findall(r"layers of (\d+)", said)
    with serving("--threads=4", model_dir=str(tmp_path)) as server:
        reply = server.predict([[1.0] * int(width)])
        assert reply.status == 200
        assert len(reply.json()["predictions"][0]) == 10
