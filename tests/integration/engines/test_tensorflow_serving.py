"""Basket in front of a model server: another Basket, asked in V1 over real sockets."""

import contextlib
import json
import os
import shutil
import signal
import threading
from pathlib import Path

import pytest

from testing.clients import at_once
from testing.server import (
    ROOT,
    free_port,
    serving,
    simulated_models,
    wait_until,
)
from tests.support.api_page import make_models
from tests.support.model_server import ModelServer, Says, metadata, tensor

SAMPLES = ROOT / "samples"
SLOW = {"base_ms": 0, "per_row_ms": 20, "input_shape": [2], "outputs": 2}
FAST = {"base_ms": 0, "input_shape": [2], "outputs": 2}
TILL = [
    {"prices": [1, 2.5, 3], "customer": "Ann"},
    {"prices": [0.5, 0, 0], "customer": {"b64": "Qm9i"}},
]


def front_models(folder: Path, url: str, **models) -> str:
    """Write a folder of models that are on the server at `url`."""
    for name, more in models.items():
        version = folder / name / "1"
        version.mkdir(parents=True)
        values = {"url": url, "model": name, **more}
        (version / "tensorflow_serving.json").write_text(json.dumps(values))
    return str(folder)


@pytest.fixture(scope="module")
def behind(tmp_path_factory):
    """The server that holds the models: digits, a SavedModel, and a slow one."""
    models = make_models(tmp_path_factory.mktemp("behind"))
    simulated_models(Path(models), slow=SLOW)
    with serving("--threads=8", model_dir=models, default_model="digits") as server:
        yield server


@pytest.fixture(scope="module")
def front(behind, tmp_path_factory):
    """The server in front of it, which also looks for a model that is not there."""
    folder = tmp_path_factory.mktemp("front")
    models = front_models(
        folder,
        f"http://127.0.0.1:{behind.port}",
        digits={},
        till={"version": 1},
        slow={"timeout_ms": 1000},
        missing={},
    )
    (folder / "slow" / "basket.toml").write_text("max_batch_size = 4\n")
    for name in ("basket.toml", "classes.json"):
        shutil.copy(ROOT / "models" / "digits" / name, folder / "digits" / name)
    with serving(
        "--threads=8", ready=False, model_dir=models, default_model="digits"
    ) as server:
        server.wait_until_loaded()
        yield server


def _same(front, behind, path, value):
    body = json.dumps(value).encode()
    direct = behind.request("POST", path, body)
    through = front.request("POST", path, body)
    assert direct.status == through.status == 200, through.body
    return direct.json(), through.json()


def test_numbers_are_those_of_the_server_behind(front, behind):
    """Ten pictures, each in a batch of its own, are answered as by what is behind."""
    for file in sorted(SAMPLES.glob("*.json")):
        direct, through = _same(front, behind, "/predict", json.loads(file.read_text()))
        assert direct == through


def test_strings_and_several_inputs_are_those_of_the_server_behind(front, behind):
    """A SavedModel with strings answers the same in rows and in columns."""
    columns = {"prices": [[1, 2.5, 3]], "customer": ["Ann"]}
    for asked in ({"instances": TILL}, {"inputs": columns}):
        direct, through = _same(front, behind, "/v1/models/till:predict", asked)
        assert direct == through


def test_all_signatures_are_there(front, behind):
    """Metadata through both servers are the same, but for the order of names."""
    direct = behind.request("GET", "/v1/models/till/metadata").json()["metadata"]
    through = front.request("GET", "/v1/models/till/metadata").json()["metadata"]
    assert direct == through
    assert len(direct["signature_def"]["signature_def"]) > 1


def test_pictures_are_decoded_in_front(front):
    """A picture becomes rows in front, and classes are named there."""
    picture = (SAMPLES / "7.png").read_bytes()
    headers = {"Content-Type": "image/png"}
    reply = front.request("POST", "/predict", picture, headers)
    assert reply.json()["class_name"] == "seven"


def test_no_framework_in_front(front, behind):
    """The worker in front has mapped no library of TensorFlow; the one behind has."""

    def mapped(server):
        (worker,) = server.workers()
        return "tensorflow" in Path(f"/proc/{worker}/maps").read_text()

    assert mapped(behind)
    assert not mapped(front)


def test_bad_rows_do_not_travel(front, behind):
    """What does not fit the signature is refused in front, with the place."""
    series = 'basket_requests_total{model="till",status="400",version="1"}'
    before = behind.metric(series)
    body = json.dumps({"instances": [TILL[0], {"prices": [1], "customer": "A"}]})
    reply = front.request("POST", "/v1/models/till:predict", body.encode())
    assert reply.status == 400
    assert "instances[1].prices" in reply.json()["error"]
    assert behind.metric(series) == before


def test_a_model_that_is_not_there(front):
    """It is named with the other server's own words, and the others are served."""
    why = front.request("GET", "/readyz").json()["not_ready"]
    assert list(why) == ["missing"]
    assert "127.0.0.1 has no such model: Could not find any" in why["missing"]


def test_slow(front, behind):
    """A batch that the server behind does not answer in time is late, with its host."""
    long = json.dumps({"instances": [[0, 0]] * 120}).encode()
    path = "/v1/models/slow:predict"
    sent = threading.Thread(target=behind.request, args=("POST", path, long))
    sent.start()
    # The first 64 of the rows run, for 1.28 s, and then the others.
    waiting = 'basket_queue_rows{model="slow",version="1"}'
    wait_until(lambda: behind.metric(waiting) == 56, 5)
    asked = json.dumps({"instances": [[1, 2]]}).encode()
    reply = front.request("POST", path, asked)
    sent.join()
    assert reply.status == 504
    assert reply.json()["error"] == (
        "the model server 127.0.0.1 did not answer within 1 s"
    )
    reply = front.request("POST", path, asked)
    assert reply.json() == {"predictions": [[1, 2]]}


def test_a_row_that_the_server_refuses_fails_alone(tmp_path):
    """Of eight clients whose rows share a batch the one with the bad row gets 500."""
    x = {"x": tensor("DT_FLOAT", -1)}

    def answer(asked):
        if asked.path.endswith("/metadata"):
            return metadata(serving_default=(x, x))
        values = asked.json()["inputs"]["x"]
        if 5 in values:
            return Says.value({"error": "5 is bad"}, 400)
        return Says.value({"outputs": values})

    far = ModelServer(answer)
    with far.running():
        models = front_models(tmp_path, far.url, m={})
        (tmp_path / "m" / "basket.toml").write_text("batch_timeout_micros = 300000\n")
        with serving("--threads=8", model_dir=models) as front:
            replies, _ = at_once(front.port, list(range(8)))
    assert len(far.sent(":predict")[2].json()["inputs"]["x"]) > 1
    for value, reply in enumerate(replies):
        if value == 5:
            text = "the model server 127.0.0.1 answered 400: 5 is bad"
            assert (reply.status, reply.json()) == (500, {"error": text})
        else:
            assert reply.json() == {"predictions": [value]}


def test_the_server_behind_dies_and_comes_back(tmp_path):
    """While it is away answers are 503 with Retry-After, and after that right again."""
    port = free_port()
    models = simulated_models(tmp_path / "behind", m=FAST)
    bind = f"--bind=127.0.0.1:{port}"
    far = front_models(tmp_path / "front", f"http://127.0.0.1:{port}", m={})
    with contextlib.ExitStack() as stack:
        with serving(bind, model_dir=models, own_session=True) as behind:
            front = stack.enter_context(serving("--threads=4", model_dir=far))
            assert front.predict([[1, 2]]).json() == {"predictions": [[1, 2]]}
            os.killpg(behind.process.pid, signal.SIGKILL)
            behind.process.wait()
        for _ in range(3):
            reply = front.predict([[1, 2]])
            assert (reply.status, reply.headers["Retry-After"]) == (503, "1")
            assert "the model server 127.0.0.1" in reply.json()["error"]
        with serving(bind, model_dir=models):
            assert front.predict([[3, 4]]).json() == {"predictions": [[3, 4]]}


def test_the_server_behind_comes_later(tmp_path):
    """Basket waits for it, says so in /readyz, and serves when it is there."""
    port = free_port()
    models = simulated_models(tmp_path / "behind", m=FAST)
    far = front_models(tmp_path / "front", f"http://127.0.0.1:{port}", m={})
    with serving("--threads=4", ready=False, model_dir=far) as front:
        front.wait_until_loaded()
        why = front.request("GET", "/readyz").json()["not_ready"]
        assert "the model server 127.0.0.1 can't be reached" in why["m"]
        with serving(f"--bind=127.0.0.1:{port}", model_dir=models):
            front.wait_until_ready()
            assert front.predict([[3, 4]]).json() == {"predictions": [[3, 4]]}
