"""The manifests of deploy/kubernetes and deploy/kserve, as files and rendered."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
KUBERNETES = ROOT / "deploy" / "kubernetes"
KSERVE = ROOT / "deploy" / "kserve"
KUBECTL = shutil.which("kubectl")
KSERVE_PYTHON = ROOT / ".venv-kserve" / "bin" / "python"
_CHECKS = ROOT / "tests" / "support" / "operator_kinds.py"
Manifest = dict[str, Any]


def load(text: str | Path) -> list[Manifest]:
    """Return the manifests of a file or a text."""
    return list(YAML(typ="safe").load_all(text))


def files() -> list[Path]:
    """Return the files with manifests that a cluster gets."""
    found = [*KUBERNETES.glob("*/*.yaml"), *KSERVE.glob("*.yaml")]
    # What kustomize reads, and what it merges into a manifest.
    others = ("kustomization.yaml", "gpu/deployment.yaml")
    return sorted(each for each in found if not str(each).endswith(others))


def all_manifests() -> list[Manifest]:
    """Return the manifests of all files."""
    return [manifest for file in files() for manifest in load(file)]


def only(manifests: list[Manifest], kind: str) -> Manifest:
    """Return the one manifest of a kind."""
    (found,) = [each for each in manifests if each["kind"] == kind]
    return found


def container(deployment: Manifest) -> Manifest:
    """Return the container of a Deployment or a ServingRuntime."""
    spec = deployment["spec"]
    pod = spec["template"]["spec"] if "template" in spec else spec
    (found,) = pod["containers"]
    return found


def render(folder: Path) -> list[Manifest]:
    """Return what `kubectl kustomize` makes of a folder.

    Raises:
        AssertionError: it fails, such as for an unknown field of a kustomization.
    """
    done = subprocess.run(
        [str(KUBECTL), "kustomize", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return load(done.stdout)


def operators_problems(manifests: list[Manifest]) -> list[list[str]]:
    """Return the problems of manifests whose kinds operators add, for each."""
    done = subprocess.run(
        [KSERVE_PYTHON, _CHECKS],
        input=json.dumps(manifests),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
