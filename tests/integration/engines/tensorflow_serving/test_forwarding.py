"""A Basket that forwards to another Basket in V1, over real sockets."""

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
from tests.support.model_server import ModelServer, Response, metadata, tensor

SAMPLES = ROOT / "samples"
SLOW = {"base_ms": 0, "per_row_ms": 20, "input_shape": [2], "outputs": 2}
FAST = {"base_ms": 0, "input_shape": [2], "outputs": 2}
TILL = [
    {"prices": [1, 2.5, 3], "customer": "Ann"},
    {"prices": [0.5, 0, 0], "customer": {"b64": "Qm9i"}},
]


def front_models(folder: Path, url: str, **models) -> str:
    """Write a folder of models that the server at `url` runs."""
    for name, more in models.items():
        version = folder / name / "1"
        version.mkdir(parents=True)
        values = {"url": url, "model": name, **more}
        (version / "tensorflow_serving.json").write_text(json.dumps(values))
    return str(folder)


@pytest.fixture(scope="module")
def remote(tmp_path_factory):
    """The remote server, which holds digits, a SavedModel, and a slow model."""
    models = make_models(tmp_path_factory.mktemp("remote"))
    simulated_models(Path(models), slow=SLOW)
    with serving("--threads=8", model_dir=models, default_model="digits") as server:
        yield server


@pytest.fixture(scope="module")
def front(remote, tmp_path_factory):
    """The forwarding server; one of its models does not exist on the remote."""
    folder = tmp_path_factory.mktemp("front")
    models = front_models(
        folder,
        f"http://127.0.0.1:{remote.port}",
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


def _same(front, remote, path, value):
    body = json.dumps(value).encode()
    direct = remote.request("POST", path, body)
    through = front.request("POST", path, body)
    assert direct.status == through.status == 200, through.body
    return direct.json(), through.json()


def test_forwarded_predictions_equal_those_of_the_remote(front, remote):
    """Ten images, each in a batch of its own, get the remote's predictions."""
    for file in sorted(SAMPLES.glob("*.json")):
        direct, through = _same(front, remote, "/predict", json.loads(file.read_text()))
        assert direct == through


def test_forwarded_strings_and_several_inputs_equal_those_of_the_remote(front, remote):
    """A SavedModel with strings answers the same in rows and in columns."""
    columns = {"prices": [[1, 2.5, 3]], "customer": ["Ann"]}
    for request in ({"instances": TILL}, {"inputs": columns}):
        direct, through = _same(front, remote, "/v1/models/till:predict", request)
        assert direct == through


def test_forwarded_metadata_has_all_signatures(front, remote):
    """The metadata of both servers are equal."""
    direct = remote.request("GET", "/v1/models/till/metadata").json()["metadata"]
    through = front.request("GET", "/v1/models/till/metadata").json()["metadata"]
    assert direct == through
    assert len(direct["signature_def"]["signature_def"]) > 1


def test_images_are_decoded_before_forwarding(front):
    """The forwarding server decodes an image and names its class."""
    picture = (SAMPLES / "7.png").read_bytes()
    headers = {"Content-Type": "image/png"}
    reply = front.request("POST", "/predict", picture, headers)
    assert reply.json()["class_name"] == "seven"


def test_forwarding_worker_loads_no_framework(front, remote):
    """The forwarding worker maps no TensorFlow library; the remote's worker does."""

    def mapped(server, *packages):
        (worker,) = server.workers()
        libraries = Path(f"/proc/{worker}/maps").read_text()
        return [each for each in packages if f"site-packages/{each}/" in libraries]

    assert mapped(remote, "tensorflow") == ["tensorflow"]
    assert not mapped(front, "tensorflow")
    # Installed for other tests; TensorFlow and Keras would import them.
    assert not mapped(remote, "jaxlib", "matplotlib", "scipy", "sklearn")


def test_invalid_rows_are_refused_before_forwarding(front, remote):
    """Rows that do not fit the signature are a 400 with their place, and not sent."""
    series = 'basket_requests_total{model="till",status="400",version="1"}'
    before = remote.metric(series)
    body = json.dumps({"instances": [TILL[0], {"prices": [1], "customer": "A"}]})
    reply = front.request("POST", "/v1/models/till:predict", body.encode())
    assert reply.status == 400
    assert "instances[1].prices" in reply.json()["error"]
    assert remote.metric(series) == before


def test_missing_remote_model_is_not_ready(front):
    """/readyz quotes the remote's reason, and the other models are served."""
    why = front.request("GET", "/readyz").json()["not_ready"]
    assert list(why) == ["missing"]
    assert "model server has no such model: Could not find any" in why["missing"]


def test_slow_remote_returns_504(front, remote):
    """A batch that the remote does not answer in time is a 504 with its host."""
    long = json.dumps({"instances": [[0, 0]] * 120}).encode()
    path = "/v1/models/slow:predict"
    sent = threading.Thread(target=remote.request, args=("POST", path, long))
    sent.start()
    # The first 64 rows run for 1.28 s; the others wait.
    waiting = 'basket_queue_rows{model="slow",version="1"}'
    wait_until(lambda: remote.metric(waiting) == 56, 60)
    request = json.dumps({"instances": [[1, 2]]}).encode()
    reply = front.request("POST", path, request)
    sent.join()
    assert reply.status == 504
    assert reply.json()["error"] == ("the model server did not answer within 1 s")
    reply = front.request("POST", path, request)
    assert reply.json() == {"predictions": [[1, 2]]}


def test_row_that_the_remote_refuses_fails_alone(tmp_path):
    """Of eight clients in one batch, only the one with the bad row gets a 500."""
    x = {"x": tensor("DT_FLOAT", -1)}

    def answer(request):
        if request.path.endswith("/metadata"):
            return metadata(serving_default=(x, x))
        values = request.json()["inputs"]["x"]
        if 5 in values:
            return Response.value({"error": "5 is bad"}, 400)
        return Response.value({"outputs": values})

    server = ModelServer(answer)
    with server.running():
        models = front_models(tmp_path, server.url, m={})
        (tmp_path / "m" / "basket.toml").write_text("batch_timeout_micros = 300000\n")
        with serving("--threads=8", model_dir=models) as front:
            replies, _ = at_once(front.port, list(range(8)))
    assert len(server.requests_to(":predict")[4].json()["inputs"]["x"]) > 1
    for value, reply in enumerate(replies):
        if value == 5:
            text = "the model server answered 400: 5 is bad"
            assert (reply.status, reply.json()) == (400, {"error": text})
        else:
            assert reply.json() == {"predictions": [value]}


def test_killed_remote_returns_503_until_it_is_back(tmp_path):
    """While it is down, responses are 503 with Retry-After; then 200 again."""
    port = free_port()
    models = simulated_models(tmp_path / "remote", m=FAST)
    bind = f"--bind=127.0.0.1:{port}"
    front_dir = front_models(tmp_path / "front", f"http://127.0.0.1:{port}", m={})
    with contextlib.ExitStack() as stack:
        with serving(bind, model_dir=models, own_session=True) as remote:
            front = stack.enter_context(serving("--threads=4", model_dir=front_dir))
            assert front.predict([[1, 2]]).json() == {"predictions": [[1, 2]]}
            os.killpg(remote.process.pid, signal.SIGKILL)
            remote.process.wait()
        for _ in range(3):
            reply = front.predict([[1, 2]])
            assert (reply.status, reply.headers["Retry-After"]) == (503, "1")
            assert "the model server " in reply.json()["error"]
            assert "127.0.0.1" not in reply.json()["error"]
        with serving(bind, model_dir=models):
            assert front.predict([[3, 4]]).json() == {"predictions": [[3, 4]]}


def test_remote_that_starts_later_becomes_ready(tmp_path):
    """Basket retries, reports the reason in /readyz, and serves once it is up."""
    port = free_port()
    models = simulated_models(tmp_path / "remote", m=FAST)
    front_dir = front_models(tmp_path / "front", f"http://127.0.0.1:{port}", m={})
    with serving("--threads=4", ready=False, model_dir=front_dir) as front:
        front.wait_until_loaded()
        why = front.request("GET", "/readyz").json()["not_ready"]
        assert "the model server can't be reached" in why["m"]
        with serving(f"--bind=127.0.0.1:{port}", model_dir=models):
            front.wait_until_ready()
            assert front.predict([[3, 4]]).json() == {"predictions": [[3, 4]]}
