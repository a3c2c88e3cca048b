"""deploy/, the Dockerfile, the Makefile and the requirements fit each other."""

import json
import re
import subprocess
import sys
import tomllib
from os import environ
from pathlib import Path

import pytest
from gunicorn.config import GracefulTimeout
from ruamel.yaml import YAML

from app import create_app
from app.engines.tensorflow_serving.engine import RemoteModel
from app.settings import Settings, variables
from tests.support.build_context import in_build_context

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
    """The base is pinned, and has the Python that the requirements are pinned for."""
    version = re.search(r"--python-version (\S+)", MAKEFILE)[1]
    (base,) = re.findall(r"^ARG BASE=(.*)$", DOCKERFILE, re.M)
    pinned = rf"python:{re.escape(version)}\.\d+-slim-bookworm@sha256:[0-9a-f]{{64}}"
    assert re.fullmatch(pinned, base)
    stages = re.findall(r"^FROM (\S+)", DOCKERFILE, re.M)
    assert set(stages) == {"${BASE}"}


def test_image_has_the_version_of_the_project():
    """The label of the version is that of pyproject.toml."""
    (label,) = re.findall(r'image\.version="(.*)"', DOCKERFILE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert label == project["version"]


def test_image_starts_an_init_that_is_installed():
    """Process 1 passes signals on before Gunicorn has handlers for them."""
    (entry,) = re.findall(r"^ENTRYPOINT (\[.*\])$", DOCKERFILE, re.M)
    init, _ = json.loads(entry)
    assert re.search(rf"^    && apt-get install .* {init} ", DOCKERFILE, re.M)


def split_pins(folder: Path, device: str) -> dict[str, bytes]:
    """Run the Dockerfile's stage that splits pins in a folder; return its files."""
    (folder / "from").mkdir(exist_ok=True)
    for source in ("requirements.txt", "requirements/cuda.txt"):
        name = re.search(rf"^COPY {source} /pins/from/(\S*)$", DOCKERFILE, re.M)[1]
        copy = folder / "from" / (name or Path(source).name)
        if not copy.exists():
            copy.write_bytes((ROOT / source).read_bytes())
    (program,) = re.findall(r"^RUN (test -f (?:.*\\\n)*.*)$", DOCKERFILE, re.M)
    program = program.replace("/pins/", f"{folder}/")
    subprocess.run(["sh", "-c", program], env=environ | {"DEVICE": device}, check=True)
    return {each.name: each.read_bytes() for each in folder.glob("*.txt")}


def test_change_of_a_cuda_pin_leaves_the_pins_of_the_cpu(tmp_path):
    """The layers for the CPU are made of the same bytes as before."""
    before = split_pins(tmp_path, "cpu")
    assert set(before) == {"large.txt", "rest.txt"}
    cuda = tmp_path / "from" / "cuda.txt"
    text, changed = re.subn(
        r"^(nvidia-[\w-]+)==\S+", r"\1==0.0", cuda.read_text(), flags=re.M
    )
    assert changed
    cuda.write_text(text)
    assert b"==0.0" in split_pins(tmp_path, "cuda")["large.txt"]
    assert split_pins(tmp_path, "cpu") == before


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_image_splits_the_pins_into_two_layers(tmp_path, device):
    """TensorFlow and CUDA are in one file, the rest in the other; libclang in none."""
    file = {"cpu": "requirements.txt", "cuda": "requirements/cuda.txt"}[device]
    split_pins(tmp_path, device)
    large, rest = (
        dict(PIN.findall((tmp_path / f"{name}.txt").read_text()))
        for name in ("large", "rest")
    )
    assert large.keys() & {"tensorflow", "flask", "numpy"} == {"tensorflow"}
    assert any(name.startswith("nvidia-cudnn") for name in large) == (device == "cuda")
    assert large | rest | {"libclang": pins(file)["libclang"]} == pins(file)
    hashed = re.compile(r"--hash=sha256:")
    split = sum(
        len(hashed.findall(each.read_text())) for each in tmp_path.glob("*.txt")
    )
    of_libclang = (ROOT / file).read_text().partition("\nlibclang==")[2]
    dropped = re.match(r"(?:.*\n)(?: +.*\n)*", of_libclang)[0]
    whole = len(hashed.findall((ROOT / file).read_text()))
    assert split == whole - len(hashed.findall(dropped))


def test_health_checks_ask_existing_routes(tmp_path):
    """The image asks for liveness; compose for readiness, by which nginx starts."""
    checks = [re.search(r"^ +CMD (\[.*\])$", DOCKERFILE, re.M)[1]]
    for file in COMPOSE:
        service = YAML(typ="safe").load(file)["services"]["basket"]
        checks.append(json.dumps(service["healthcheck"]["test"]))
    asked = [re.search(r"127\.0\.0\.1:8000(/\w+)'", each)[1] for each in checks]
    assert asked == ["/healthz", "/readyz", "/readyz"]
    client = create_app(Settings(model_dir=tmp_path)).flask.test_client()
    assert [client.get(path).status_code for path in asked] == [200, 503, 503]


def test_copied_files_exist_and_are_not_ignored():
    """Each path that the Dockerfile copies exists and is in the build context."""
    lines = (ROOT / ".dockerignore").read_text().split()
    exceptions = [line[1:] for line in lines if line[0] == "!"]
    copies = re.findall(r"^COPY (.*) \S+$", DOCKERFILE, re.M)
    paths = [path for line in copies for path in line.split()]
    assert len(paths) == 6
    for path in paths:
        assert (ROOT / path).exists()
        assert any(f"{each}/".startswith(f"{path}/") for each in exceptions)


def test_build_context_has_the_files_of_the_application():
    """It has all tracked files of app/ but the sources of the descriptors."""
    listed = ["git", "ls-files", "app"]
    tracked = subprocess.run(
        listed, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    missing = [path for path in tracked if not in_build_context(path)]
    assert missing == [
        path for path in tracked if path.startswith("app/protocols/protos/")
    ]
    strays = ("app/notes.txt", "app/codec/.hidden.py", "app/__pycache__/errors.pyc")
    assert not any(
        map(in_build_context, (*strays, "models/digits/train.py", ".git/HEAD"))
    )


def test_image_adds_its_user_before_it_copies_files():
    """A change of a file or a pin does not make the user's layer again."""
    *_, stage = DOCKERFILE.split("\nFROM ")
    first = re.search(r"^(COPY|ADD|RUN --mount) ", stage, re.M).start()
    assert 0 < stage.find("\nRUN useradd ") < first


def pins(name: str) -> dict[str, str]:
    """Return the pinned packages of a requirements file."""
    return dict(PIN.findall((ROOT / name).read_text()))


@pytest.mark.parametrize("other", ["cuda", "dev", "ray", "otel"])
def test_requirements_on_top_agree_with_the_main_ones(other):
    """A set that is installed beside requirements.txt pins the same versions."""
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
