"""deploy/, the Dockerfile, the Makefile and the requirements fit each other."""

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
DOCKERFILE = (ROOT / "Dockerfile").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()
# A package and its version, with its extras between them.
PIN = re.compile(r"^([\w.-]+)(?:\[[^]]*\])?==(\S+)", re.M)
every_file = pytest.mark.parametrize("file", COMPOSE, ids=lambda file: file.name)


def directive(name: str) -> int:
    """Return the number that nginx.conf gives a directive, which it has once."""
    (number,) = re.findall(rf"^\s+{name} (\d+)[ms]?;", NGINX, re.M)
    return int(number)


def test_nginx_has_the_limits_of_basket():
    """The body limit is that of Basket, and nginx waits for Basket's own 504."""
    settings = Settings()
    assert directive("client_max_body_size") << 20 == settings.max_body_bytes
    limit_s = settings.request_timeout_ms / 1000
    assert limit_s < directive("proxy_read_timeout") < 2 * limit_s


def test_nginx_closes_idle_connections_first():
    """The keep-alive timeout of nginx is below that of Basket's Gunicorn."""
    configuration = (ROOT / "gunicorn.conf.py").read_text()
    (keepalive_s,) = re.findall(r"^keepalive = (\d+)$", configuration, re.M)
    assert directive("keepalive_timeout") < int(keepalive_s)


def test_supervisors_wait_for_the_graceful_timeout():
    """Both systemd and compose give more time than a graceful shutdown may take."""
    unit = (DEPLOY / "basket.service").read_text()
    (of_unit,) = re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.M)
    given = [of_unit]
    for file in COMPOSE:
        given += re.findall(r"^    stop_grace_period: (\d+)s$", file.read_text(), re.M)
    assert len(given) == 3
    assert all(int(seconds) > GracefulTimeout.default for seconds in given)


def test_compose_files_fit_the_specification():
    """The files match the compose specification's JSON schema."""
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
def test_compose_sets_existing_settings(file):
    """All of Basket's variables are settings, and so are the API keys in a comment."""
    text = re.sub(r"# (?=BASKET_)", "", file.read_text())
    services = YAML(typ="safe").load(text)["services"]
    environment = services["basket"]["environment"]
    assert "BASKET_API_KEYS" in environment
    assert set(environment) <= set(variables())


@every_file
def test_compose_services_depend_on_existing_ones(file):
    """Services wait for services of the file, and nginx passes requests to Basket."""
    services = YAML(typ="safe").load(file)["services"]
    assert "server basket:8000;" in NGINX
    for service in services.values():
        assert set(service.get("depends_on", ())) <= set(services)


def test_all_set_ups_have_the_same_threads():
    """The unit, the compose files and the image give a worker 64 threads."""
    files = [DEPLOY / "basket.service", ROOT / "Dockerfile", *COMPOSE]
    given = [re.findall(r"--threads=(\d+)", file.read_text()) for file in files]
    assert given == [["64"]] * 4


@every_file
def test_mounted_files_exist(file):
    """Each mounted file or folder is in the repository, or is made by an export."""
    services = YAML(typ="safe").load(file)["services"]
    mounts = [each for one in services.values() for each in one.get("volumes", ())]
    assert mounts
    for mount in mounts:
        source, _, mode = mount.split(":")
        assert mode == "ro"
        assert source == "../exported/digits" or (DEPLOY / source).exists(), source


def test_tensorflow_serving_json_names_the_service():
    """The file for the engine names the service and the model that compose runs."""
    text = (DEPLOY / "tensorflow_serving.json").read_bytes()
    remote = RemoteModel.parse(text, 1000)
    file = DEPLOY / "compose.tensorflow_serving.yaml"
    service = YAML(typ="safe").load(file)["services"][remote.url.hostname]
    assert service["environment"]["MODEL_NAME"] == remote.model
    # TensorFlow Serving's own port for REST.
    assert remote.url.port == 8501


def test_image_has_the_python_of_the_requirements():
    """The Dockerfile's Python is the one that the requirements are pinned for."""
    version = re.search(r"--python-version (\S+)", MAKEFILE)[1]
    (base,) = re.findall(r"^FROM (.*)$", DOCKERFILE, re.M)
    assert base == f"python:{version}-slim"


def test_copied_files_exist_and_are_not_ignored():
    """Each path that the Dockerfile copies exists and is in the build context."""
    exceptions = (ROOT / ".dockerignore").read_text().split()
    copies = re.findall(r"^COPY (.*) \S+$", DOCKERFILE, re.M)
    paths = [path for line in copies for path in line.split()]
    assert len(paths) == 6
    for path in paths:
        assert (ROOT / path).exists()
        assert any(Path(path).match(line[1:]) for line in exceptions if line[0] == "!")


def pins(name: str) -> dict[str, str]:
    """Return the pinned packages of a requirements file."""
    return dict(PIN.findall((ROOT / name).read_text()))


@pytest.mark.parametrize("other", ["cuda", "dev"])
def test_requirements_on_top_agree_with_the_main_ones(other):
    """A set that make installs beside requirements.txt pins the same versions."""
    main, beside = pins("requirements.txt"), pins(f"requirements/{other}.txt")
    assert "tensorflow" in main
    assert beside | main == beside


def test_dev_requirements_agree_with_cuda():
    """The tools install on top of TensorFlow with CUDA where there is a GPU."""
    cuda, tools = pins("requirements/cuda.txt"), pins("requirements/dev.txt")
    assert tools | {name: cuda[name] for name in cuda.keys() & tools.keys()} == tools


def test_make_help_lists_every_command():
    """`make help` has a line for each public target."""
    (phony,) = re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.M)
    for target in set(phony.split()) - {"help"}:
        assert f'"make {target} ' in MAKEFILE
        assert re.search(rf"^{target}:", MAKEFILE, re.M)
