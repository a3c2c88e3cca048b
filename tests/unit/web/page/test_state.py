"""GET /page/state: what a server does, for those who may see it."""

import json
from functools import partial
from itertools import count

import pytest

from app.web.page import sampler
from app.settings import variables
from testing.contract import Contract, read_document
from testing.exchange import Answer, Request
from testing.server import simulated_models
from tests.support.exchanges import error, started_client

ECHO = {"base_ms": 0, "input_shape": [2], "outputs": 2}
CLIENT = {"Authorization": "Bearer client"}
ADMIN = {"Authorization": "Bearer admin"}
API_KEYS, ADMIN_KEYS = {"api_keys": ("client",)}, {"admin_keys": ("admin",)}
FOR_ADMINS = {"processes", "restarts", "settings", "errors"}
CONTRACT = Contract(read_document())


@pytest.fixture(name="serve")
def _serve(tmp_path, monkeypatch):
    """Start an application with the model `m`; settings are those of the server."""
    clients = []
    # Each look at the clock is a second after the last one.
    clock = count(100.0).__next__
    monkeypatch.setattr(sampler, "Sampler", partial(sampler.Sampler, clock=clock))
    simulated_models(tmp_path, m=ECHO)

    def serve(**settings):
        clients.append(started_client(tmp_path, default_model="m", **settings))
        return clients[-1].__enter__()

    yield serve
    for each in clients:
        each.__exit__(None, None, None)


def state_of(client, headers=None, since=0):
    """Return the state, which is as the API's description has it."""
    response = client.get(f"/page/state?since={since}", headers=headers)
    assert response.headers["Cache-Control"] == "no-store"
    answer = Answer(
        response.status_code, {"content-type": response.content_type}, response.data
    )
    assert CONTRACT.problem(Request("GET", "/page/state"), answer) is None
    return response.json


def tick(client, times=1):
    """Have the server's sampler tick, a second after its last tick."""
    for _ in range(times):
        client.application.wsgi_app.server.sampler.tick()


def test_state_of_a_model_says_how_to_ask_it(serve):
    """A model is there with its versions, limits, inputs and outputs."""
    state = state_of(serve(max_batch_size=8))
    tensor = {"dtype": "float32", "shape": [2]}
    version = {
        "version": "1",
        "state": "AVAILABLE",
        "error": "",
        "platform": "simulated",
        "inputs": [tensor | {"name": "input"}],
        "outputs": [tensor | {"name": "output"}],
        "batching": "",
        "image": None,
        "v2": True,
        "user_code": False,
        "example": {"instances": [[0.0, 0.0]]},
    }
    assert state["default_model"] == "m"
    assert state["models"] == [
        {
            "name": "m",
            "problems": [],
            "traffic": {},
            "labels": {},
            "rollout": None,
            "max_queue_rows": 128,
            "max_batch_size": 8,
            "versions": [version],
        }
    ]


def test_state_has_problems_labels_and_traffic(serve, tmp_path):
    """A version that can't be loaded has its reason, beside the one that serves."""
    (tmp_path / "m" / "basket.toml").write_text(
        "max_batch_size = 4\n[labels]\nstable = 1\n[traffic]\nstable = 90\n"
    )
    (tmp_path / "m" / "2").mkdir()
    (tmp_path / "m" / "2" / "simulated.json").write_text("{")
    (tmp_path / "bad" / "1").mkdir(parents=True)
    (tmp_path / "bad" / "1" / "simulated.json").write_text("{")
    bad, model = state_of(serve())["models"]
    assert (bad["name"], bad["max_queue_rows"], bad["max_batch_size"]) == (
        *("bad", None, None),
    )
    assert model["labels"] == {"stable": "1"}
    assert model["traffic"] == {"stable": 90}
    assert model["max_batch_size"] == 4
    newest, oldest = model["versions"]
    assert (newest["version"], newest["state"], newest["inputs"]) == ("2", "END", [])
    assert newest["error"]
    assert model["problems"] == [f"version 2: {newest['error']}"]
    assert (oldest["version"], oldest["state"]) == ("1", "AVAILABLE")


def test_version_of_19_digits_is_served_by_each_protocol(serve, tmp_path):
    """The state has it as a string, as JavaScript rounds such a number."""
    number = str(2**63 - 1)
    (tmp_path / "m" / "1").rename(tmp_path / "m" / number)
    (tmp_path / "m" / "basket.toml").write_text(f"[labels]\nstable = {number}\n")
    client = serve()
    (model,) = state_of(client)["models"]
    assert [each["version"] for each in model["versions"]] == [number]
    assert model["labels"] == {"stable": number}
    v1 = {"instances": [[1, 2]]}
    v2 = {"inputs": [{"name": "input", "datatype": "FP32", "shape": [1, 2]}]}
    v2["inputs"][0]["data"] = [1, 2]
    for path, body in (
        (f"/v1/models/m/versions/{number}:predict", v1),
        ("/v1/models/m/labels/stable:predict", v1),
        (f"/v2/models/m/versions/{number}/infer", v2),
        ("/predict", v1),
    ):
        response = client.post(path, json=body)
        assert response.status_code == 200, response.json
        assert response.headers["X-Model-Version"] == number


def test_state_has_pictures_and_examples(serve, tmp_path):
    """A model of pictures says which; one of user code shows its EXAMPLE.

    There is none for a row of more values than somebody would edit.
    """
    simulated_models(
        tmp_path,
        grey=ECHO | {"input_shape": [8, 4, 1]},
        large=ECHO | {"input_shape": [64, 65]},
    )
    (tmp_path / "grey" / "classes.json").write_text('["no", "yes"]')
    (tmp_path / "grey" / "basket.toml").write_text(
        '[image]\nsize = [8, 4]\nmode = "L"\nscale = "0..1"\nclasses = "classes.json"\n'
    )
    (tmp_path / "code" / "1").mkdir(parents=True)
    (tmp_path / "code" / "1" / "service.py").write_text(
        'EXAMPLE = {"text": "hi"}\n\n\n'
        "def predict(model, batch):\n"
        '    return [row["text"] for row in batch]\n'
    )
    models = {each["name"]: each for each in state_of(serve(user_code=True))["models"]}
    grey, large, code = (
        models[name]["versions"][0] for name in ("grey", "large", "code")
    )
    assert grey["image"] == {"size": [8, 4], "mode": "L", "classes": 2}
    assert grey["example"] == {"instances": [[[[0.0]] * 4] * 8]}
    assert large["example"] is None
    assert code["example"] == {"instances": [{"text": "hi"}]}
    assert (code["v2"], code["inputs"], code["user_code"]) == (False, [], True)
    assert not grey["user_code"]


def test_state_has_samples_that_are_newer_than_since(serve):
    """A page that has some gets the others, the newest last."""
    client = serve()
    tick(client, 4)
    numbers = [each["n"] for each in state_of(client)["samples"]]
    assert len(numbers) == 3
    assert numbers == sorted(numbers)
    for place, number in enumerate(numbers):
        newer = state_of(client, since=number)["samples"]
        assert [each["n"] for each in newer] == numbers[place + 1 :]


@pytest.mark.parametrize("since", ["-1", "1.5", "x", "", "²"])
def test_since_that_is_no_number_is_refused(serve, since):
    """The error shows what was given."""
    response = serve().get("/page/state", query_string={"since": since})
    text = f"since: expected a sample's number, given {since!r}"
    assert error(response, 400) == text


def test_since_of_any_length_is_a_number(serve):
    """A number with more digits than Python reads has no newer sample."""
    client = serve()
    tick(client, 2)
    assert state_of(client, since="9" * 5000)["samples"] == []


def test_sample_counts_requests_of_each_status(serve):
    """Answered and refused requests are in the next sample, the latter as errors."""
    client = serve()
    tick(client)
    for row in ([1, 2], [1, 2], [1]):
        client.post("/predict", json={"instances": [row]})
    client.post("/predict?model=none", json={"instances": [[1, 2]]})
    tick(client)
    state = state_of(client)
    models = state["samples"][-1]["models"]
    good, bad = (models["m"]["status"][status] for status in ("200", "400"))
    assert good == pytest.approx(2 * bad, rel=0.01)
    assert set(models[""]["status"]) == {"404"}
    assert set(state["samples"][-1]["rejected"]) == {"bad_input", "unknown_model"}
    unknown, short = state["errors"]
    assert (short["model"], short["status"]) == ("m", 400)
    assert "expected 2 values, given 1" in short["text"]
    assert (unknown["model"], unknown["status"]) == (None, 404)


def test_operators_see_settings_processes_and_restarts(serve):
    """Without keys everyone sees all."""
    state = state_of(serve())
    assert state["sees_all"]
    assert state["rights"] == "client"
    assert [each["kind"] for each in state["processes"]] == ["worker"]
    assert state["restarts"] == 0
    names = [each["name"] for each in state["settings"] if each["model"] is None]
    assert names == list(variables())


@pytest.mark.parametrize(
    ("settings", "headers", "sees_all", "rights"),
    [
        ({}, {}, True, "client"),
        ({}, ADMIN, True, "client"),
        (API_KEYS, CLIENT, False, "client"),
        (ADMIN_KEYS, {}, False, "client"),
        (ADMIN_KEYS, CLIENT, False, "client"),
        (ADMIN_KEYS, ADMIN, True, "admin"),
        (API_KEYS | ADMIN_KEYS, CLIENT, False, "client"),
        (API_KEYS | ADMIN_KEYS, ADMIN, True, "admin"),
    ],
)
def test_with_keys_only_admins_see_all(serve, settings, headers, sees_all, rights):
    """Clients see models and samples alone."""
    state = state_of(serve(**settings), headers)
    assert (state["sees_all"], state["rights"]) == (sees_all, rights)
    assert set(state) & FOR_ADMINS == (FOR_ADMINS if sees_all else set())
    assert state["models"]


@pytest.mark.parametrize("settings", [API_KEYS, API_KEYS | ADMIN_KEYS])
@pytest.mark.parametrize("key", [None, "Bearer other", "Basic admin"])
def test_strangers_get_a_401(serve, settings, key):
    """With API keys, one of them or an admin key is needed."""
    headers = {} if key is None else {"Authorization": key}
    error(serve(**settings).get("/page/state", headers=headers), 401)


def test_page_of_another_site_is_refused(serve):
    """On a loopback address without keys, neither foreign hosts nor pages see it."""
    client = serve()
    for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
        error(client.get("/page/state", headers=headers), 403)


def test_keys_are_not_in_the_state(serve):
    """Of keys an admin sees that they are set."""
    state = state_of(serve(**API_KEYS, **ADMIN_KEYS), ADMIN)
    shown = {each["name"]: each["value"] for each in state["settings"]}
    assert shown["BASKET_API_KEYS"] == shown["BASKET_ADMIN_KEYS"] == "set"
    assert '"client"' not in json.dumps({**state, "rights": ""})
