"""The checks that run elsewhere are those that run here."""

import re
import tomllib
from pathlib import Path

from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]


def _yaml(path):
    return YAML(typ="safe").load(ROOT / path)


def test_github_workflow_runs_ci_on_each_supported_python():
    """The workflow calls .ci/run on all versions within requires-python."""
    job = _yaml(".github/workflows/ci.yml")["jobs"]["test"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    first, end = map(int, re.findall(r"3\.(\d+)", project["requires-python"]))
    supported = [f"3.{minor}" for minor in range(first, end)]
    assert job["strategy"]["matrix"]["python"] == supported
    assert job["steps"][-1]["run"] == ".ci/run"
    assert (ROOT / ".ci/run").is_file()


def test_pre_commit_runs_make_lint():
    """The hook before a commit calls the target that CI calls."""
    ((hook,),) = [each["hooks"] for each in _yaml(".pre-commit-config.yaml")["repos"]]
    assert hook["entry"] == "make lint"
    assert "make lint" in (ROOT / ".ci/run").read_text()
