"""deploy/ray/serve.yaml."""

import re
from importlib.util import find_spec

import pytest
from ruamel.yaml import YAML

from testing.server import ROOT

if find_spec("ray") is None:
    pytest.skip("ray is not installed: requirements/ray.txt", allow_module_level=True)

from ray.serve.schema import ServeDeploySchema

from app.ray_serve.arguments import settings_of, variables_of
from app.ray_serve.replica import weights_in

FILE = ROOT / "deploy" / "ray" / "serve.yaml"


def test_ray_accepts_the_file_and_basket_its_arguments():
    """All values have the names and types that Ray and Basket want."""
    config = YAML(typ="safe").load(FILE.read_text())
    (application,) = ServeDeploySchema.model_validate(config).applications
    module, _, name = application.import_path.partition(":")
    assert (module, name) == ("app.ray_serve", "build")
    settings = settings_of(variables_of(application.args))
    assert settings.model_dir == ROOT / "models"
    (deployment,) = application.deployments
    assert deployment.name == "Basket"
    target = deployment.autoscaling_config["target_ongoing_requests"]
    assert target <= 2 * settings.max_batch_size


def test_number_of_gpus_in_its_comment_is_an_option_of_ray():
    """With the # removed, each replica reserves one GPU."""
    text, found = re.subn(r"# (num_gpus: )", r"\1", FILE.read_text())
    assert found == 1
    config = ServeDeploySchema.model_validate(YAML(typ="safe").load(text))
    options = config.applications[0].deployments[0].ray_actor_options
    assert (options.num_cpus, options.num_gpus) == (1, 1)


def test_user_config_in_its_comment_has_the_right_form():
    """Whoever removes the # moves traffic."""
    (line,) = (line for line in FILE.read_text().splitlines() if "user_config:" in line)
    config = YAML(typ="safe").load(line.strip().lstrip("# "))["user_config"]
    assert weights_in(config) == {"digits": {"stable": 90, "canary": 10}}
