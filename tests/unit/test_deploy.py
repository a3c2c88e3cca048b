"""deploy/ says what the settings, Gunicorn and the compose specification say."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from gunicorn.config import GracefulTimeout
from ruamel.yaml import YAML

from app.engines.tensorflow_serving.engine import RemoteModel
from app.settings import Settings, variables

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
NGINX = (DEPLOY / "nginx.conf").read_text()
COMPOSE = sorted(DEPLOY.glob("compose*.yaml"))
every_file = pytest.mark.parametrize("file", COMPOSE, ids=lambda file: file.name)


def directive(name: str) -> int:
    """The number that nginx.conf gives a directive, which stands there once."""
    (number,) = re.findall(rf"^\s+{name} (\d+)[ms]?;", NGINX, re.M)
    return int(number)


def test_nginx_takes_what_basket_takes():
    """The body limit is that of Basket, and nginx waits for Basket's own 504."""
    settings = Settings()
    assert directive("client_max_body_size") << 20 == settings.max_body_bytes
    limit_s = settings.request_timeout_ms / 1000
    assert limit_s < directive("proxy_read_timeout") < 2 * limit_s


def test_nginx_closes_idle_connections_first():
    """It keeps them for less time than Basket's Gunicorn does."""
    (kept_s,) = re.findall(
        r"^keepalive = (\d+)$", (ROOT / "gunicorn.conf.py").read_text(), re.M
    )
    assert directive("keepalive_timeout") < int(kept_s)


def test_whoever_stops_basket_waits_for_it():
    """Both systemd and compose give more time than Gunicorn takes to stop in order."""
    unit = (DEPLOY / "basket.service").read_text()
    (of_unit,) = re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.M)
    given = [of_unit]
    for file in COMPOSE:
        given += re.findall(r"^    stop_grace_period: (\d+)s$", file.read_text(), re.M)
    assert len(given) == 3
    assert all(int(seconds) > GracefulTimeout.default for seconds in given)


def test_compose_files_fit_the_specification():
    """They fit the compose specification's JSON schema, as check-jsonschema has it."""
    assert len(COMPOSE) == 2
    checked = subprocess.run(
        [
            *(sys.executable, "-m", "check_jsonschema"),
            *("--builtin-schema", "vendor.compose-spec", *map(str, COMPOSE)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout


@every_file
def test_what_compose_comments_is_a_setting(file):
    """The API keys that are commented out have the name and place of a setting."""
    text = re.sub(r"# (?=BASKET_)", "", file.read_text())
    environment = YAML(typ="safe").load(text)["services"]["basket"]["environment"]
    assert "BASKET_API_KEYS" in environment
    assert set(environment) <= set(variables())


def test_all_start_with_as_many_threads():
    """The unit, the compose files and the image give a worker as many threads."""
    files = [DEPLOY / "basket.service", ROOT / "Dockerfile", *COMPOSE]
    given = [re.findall(r"--threads=(\d+)", file.read_text()) for file in files]
    assert given == [["64"]] * 4


@every_file
def test_what_compose_mounts_is_there(file):
    """Each mounted file or folder is in the repository, or is made by an export."""
    services = YAML(typ="safe").load(file)["services"]
    mounts = [each for one in services.values() for each in one.get("volumes", ())]
    assert mounts
    for mount in mounts:
        source, _, mode = mount.split(":")
        assert mode == "ro"
        assert source == "../exported/digits" or (DEPLOY / source).exists(), source


@every_file
def test_what_compose_sets_is_a_setting(file):
    """Basket's environment has settings of Basket only, and waits are on services."""
    services = YAML(typ="safe").load(file)["services"]
    assert set(services["basket"]["environment"]) <= set(variables())
    assert "server basket:8000;" in NGINX
    for service in services.values():
        assert set(service.get("depends_on", ())) <= set(services)


def test_the_model_behind_is_a_service():
    """The file for the engine names the service and the model that compose runs."""
    text = (DEPLOY / "tensorflow_serving.json").read_bytes()
    remote = RemoteModel.parse(text, 1000)
    file = DEPLOY / "compose.tensorflow_serving.yaml"
    service = YAML(typ="safe").load(file)["services"][remote.url.hostname]
    assert service["environment"]["MODEL_NAME"] == remote.model
    # TensorFlow Serving's own port for REST.
    assert remote.url.port == 8501
