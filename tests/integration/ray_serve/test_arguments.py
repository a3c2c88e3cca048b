"""Arguments of the Ray Serve application builder."""

from importlib.util import find_spec
from types import SimpleNamespace

import pytest

from app.errors import SettingsError
from testing.server import ROOT, simulated_models

if find_spec("ray") is None:
    pytest.skip("ray is not installed: requirements/ray.txt", allow_module_level=True)

from ray import serve

from app.ray_serve import build
from app.ray_serve.arguments import settings_of, variables_of

ECHO = {"base_ms": 0, "input_shape": [1], "outputs": 1}


def test_values_of_yaml_become_settings(tmp_path):
    """Numbers, and on and off, which are booleans in YAML, are settings' texts."""
    args = {
        "model_dir": simulated_models(tmp_path, echo=ECHO),
        "default_model": "echo",
        "settings": {
            "BASKET_BATCHING": False,
            "BASKET_MAX_BATCH_SIZE": 8,
            "BASKET_GPU_MEMORY_FRACTION": 0.5,
            "BASKET_BATCH_TIMEOUT_MICROS": "auto",
            "BASKET_MODEL_PROCESS": "worker",
            "BASKET_GPUS": "all",
        },
    }
    settings = settings_of(variables_of(args))
    assert settings.model_dir == tmp_path
    assert settings.default_model == "echo"
    assert not settings.batching
    assert settings.max_batch_size == 8
    assert settings.gpu_memory_fraction == 0.5


def test_relative_paths_start_in_baskets_folder(tmp_path, monkeypatch):
    """The folder in which Ray was started does not matter."""
    monkeypatch.chdir(tmp_path)
    assert variables_of({}) == {"BASKET_MODEL_DIR": str(ROOT / "models")}
    args = {"model": "my.keras", "settings": {"BASKET_API_KEYS_FILE": "keys"}}
    assert variables_of(args) == {
        "BASKET_MODEL": str(ROOT / "my.keras"),
        "BASKET_API_KEYS_FILE": str(ROOT / "keys"),
    }
    assert variables_of({"model": "/a/my.keras"}) == {"BASKET_MODEL": "/a/my.keras"}


def test_environment_does_not_count(monkeypatch):
    """A variable of one machine is not a setting of all replicas."""
    monkeypatch.setenv("BASKET_MAX_BATCH_SIZE", "3")
    assert settings_of(variables_of({})).max_batch_size == 64


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ({"modeldir": "m"}, "'modeldir' is no argument.*did you mean model_dir?"),
        ({"xyz": 1}, "'xyz' is no argument.*there are model_dir, model, default_model"),
        ({"model_dir": ["m"]}, r"model_dir = \['m'\]: expected text, a number, on or"),
        ({"settings": "x"}, "settings = 'x': expected a mapping of BASKET_ names"),
        ({"settings": {"max_batch_size": 1}}, "'max_batch_size' is no setting"),
        (
            {"settings": {"BASKET_MAX_BATCHSIZE": 1}},
            "'BASKET_MAX_BATCHSIZE' is no setting.*did you mean BASKET_MAX_BATCH_SIZE?",
        ),
        (
            {"settings": {"BASKET_MAX_BATCH_SIZE": None}},
            "BASKET_MAX_BATCH_SIZE = None: expected text, a number, on or off",
        ),
        ({"settings": {"BASKET_BATCHING": 3}}, "BASKET_BATCHING='3': expected on or"),
        (
            {"model_dir": "m", "settings": {"BASKET_MODEL_DIR": "n"}},
            "model_dir and BASKET_MODEL_DIR in settings are both given: keep one",
        ),
        ({"model_dir": "models", "model": "m"}, "BASKET_MODEL_DIR are both set"),
        ({"model_dir": "/nowhere"}, "BASKET_MODEL_DIR='/nowhere': there is no such"),
        ({"model": "/no/m.keras"}, "BASKET_MODEL='/no/m.keras': No such file"),
        (
            {"settings": {"BASKET_MODEL_PROCESS": "shared"}},
            "BASKET_MODEL_PROCESS under Ray Serve: a replica is one process",
        ),
        ({"settings": {"BASKET_GPUS": 0}}, "BASKET_GPUS under Ray.*ray_actor_options"),
        (
            {"settings": {"BASKET_GRPC_BIND": "127.0.0.1:8500"}},
            "BASKET_GRPC_BIND under Ray Serve: clients reach a replica through Ray's",
        ),
        ({"settings": {"BASKET_ADMIN_KEYS": "a"}}, "BASKET_ADMIN_KEYS under Ray.*one"),
        ({"settings": {"BASKET_ADMIN_KEYS_FILE": "a"}}, "ADMIN_KEYS_FILE under Ray"),
        ({"settings": {"BASKET_API_KEYS_FILE": "/no"}}, "BASKET_API_KEYS_FILE='/no'"),
    ],
)
def test_bad_arguments_are_named(args, text):
    """The text says which argument or setting is wrong, and what was expected."""
    with pytest.raises(SettingsError, match=text):
        settings_of(variables_of(args))


def test_deployment_follows_the_settings(tmp_path, monkeypatch):
    """A replica gets what its queue holds, and a bounded queue has the others."""
    options = {}

    def deployment(**given):
        options.update(given)
        return lambda _: SimpleNamespace(bind=lambda variables: variables)

    monkeypatch.setattr(serve, "deployment", deployment)
    folder = simulated_models(tmp_path, echo=ECHO)
    settings = {"BASKET_MAX_BATCH_SIZE": 10, "BASKET_REQUEST_TIMEOUT_MS": 2000}
    bound = build({"model_dir": folder, "settings": settings})
    assert bound == {
        "BASKET_MAX_BATCH_SIZE": "10",
        "BASKET_REQUEST_TIMEOUT_MS": "2000",
        "BASKET_MODEL_DIR": folder,
    }
    assert options["max_ongoing_requests"] == 160
    assert options["max_queued_requests"] == 160
    assert options["graceful_shutdown_timeout_s"] > 2


def test_build_raises_without_a_chain_of_causes():
    """Ray shows the chain of an error, in which the text would be hard to find."""
    with pytest.raises(SettingsError, match="MAX_BATCH_SIZE='0'") as caught:
        build({"settings": {"BASKET_MAX_BATCH_SIZE": 0}})
    assert caught.value.__suppress_context__
