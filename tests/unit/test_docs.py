"""What the documents list is what there is."""

import re
from pathlib import Path

import pytest
from prometheus_client import REGISTRY
from ruamel.yaml import YAML

from app import create_app, errors
from app.settings import Settings, variables
from app.telemetry import Problems

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
OPERATIONS = (ROOT / "docs" / "operations.md").read_text()
# A package and its version; what it has extras for stands between.
PIN = re.compile(r"^([\w.-]+)(?:\[[^]]*\])?==(\S+)", re.M)
yaml = YAML(typ="safe")
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *ROOT.glob("docs/*.md")]


def test_every_setting_is_in_the_readme_with_its_default():
    """The README's table has a row for each setting, with the default in force."""
    defaults = {"model_dir": "models", "batching": "on", "max_body_bytes": "67108864"}
    for variable, knob in variables().items():
        (row,) = re.findall(rf"^\| `{variable}` \|(.*)\|$", README, re.M)
        shown = row.split("|")[0].strip().strip("`")
        given = getattr(Settings(), knob.name)
        if isinstance(given, str | int) and not isinstance(given, bool):
            assert shown == str(given)
        else:
            named = {"batch_timeout_micros": "auto", "gpus": "all", **defaults}
            assert shown == named.get(knob.name, shown)
            assert not shown or knob.name in (*named, "default_model")


def test_every_route_is_in_the_readme(tmp_path):
    """The README's table has each route with its method; V1's and V2's in one row."""
    for rule in create_app(Settings(model_dir=tmp_path)).url_map.iter_rules():
        if rule.rule.lower().startswith(("/v1", "/v2")):
            assert f"| `{rule.rule[:3].lower()}/...` |" in README
        else:
            (method,) = rule.methods - {"HEAD", "OPTIONS"}
            assert f"`{method} {rule.rule}`" in README


def all_series():
    """What /metrics may hold."""
    return [*REGISTRY.collect(), *Problems({}).collect()]


def test_every_series_is_in_the_operators_page(tmp_path):
    """The page on metrics names each series of ours."""
    create_app(Settings(model_dir=tmp_path))
    ours = [each for each in all_series() if each.name.startswith("basket_")]
    assert len(ours) == 12
    for series in ours:
        name = f"{series.name}_total" if series.type == "counter" else series.name
        assert f"| `{name}` |" in OPERATIONS


def test_every_reason_is_in_the_operators_page():
    """The page has a row with each reason for which a prediction is turned away."""
    kinds, reasons = [errors.BasketError], set()
    while kinds:
        kinds += kinds.pop().__subclasses__()
        reasons |= {kind.reason for kind in kinds}
    # What only Flask answers is not counted.
    reasons -= {errors.Forbidden.reason}
    (table,) = re.findall(r"^\| reason \| status \|.*\n((?:\|.*\n)+)", OPERATIONS, re.M)
    rows = [row.split("|")[1] for row in table.splitlines()]
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == reasons


def test_what_the_operators_page_configures_is_there():
    """Its YAML can be read, and its rules ask for what exists, a failed scrape too."""
    files = [
        yaml.load(text) for text in re.findall(r"```yaml\n(.*?)```", OPERATIONS, re.S)
    ]
    (alerts,) = [file["groups"][0]["rules"] for file in files if "groups" in file]
    (scraped,) = [file["scrape_configs"] for file in files if "scrape_configs" in file]
    asked = " ".join(rule["expr"] for rule in alerts)
    samples = {
        f"{series.name}{end}"
        for series in all_series()
        for end in ("", "_total", "_bucket", "_sum", "_count")
    }
    series = set(re.findall(r"\bbasket_\w+", asked))
    assert len(series) == 5
    assert series <= samples
    jobs = {job["job_name"] for job in scraped}
    assert set(re.findall(r'job="([\w-]+)"', asked)) <= jobs
    (unseen,) = re.findall(r'\bup\{job=~"(.*?)"\} == 0', asked)
    assert all(re.fullmatch(unseen, job) for job in jobs)
    assert not {"not_ready", "stopping"} & set(re.findall(r"\w+", asked))
    for reason in "|".join(re.findall(r'reason=~"([^"]*)"', asked)).split("|"):
        assert f"`{reason.removesuffix('.*')}" in OPERATIONS


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document):
    """Each link to a file of the repository finds it."""
    for target in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
        if not target.startswith("https://"):
            assert (document.parent / target).exists(), target


def test_the_image_has_the_python_that_packages_are_pinned_for():
    """The Dockerfile begins with the version that the requirements are compiled for."""
    pinned = re.search(r"--python-version (\S+)", (ROOT / "Makefile").read_text())
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    first = next(line for line in lines if not line.startswith("#"))
    assert first == f"FROM python:{pinned[1]}-slim"


def test_what_the_image_copies_is_there():
    """Each path that the Dockerfile copies exists and is let through to the build."""
    let_through = (ROOT / ".dockerignore").read_text().split()
    copies = re.findall(r"^COPY (.*) \S+$", (ROOT / "Dockerfile").read_text(), re.M)
    paths = [path for line in copies for path in line.split()]
    assert len(paths) == 6
    for path in paths:
        assert (ROOT / path).exists()
        assert any(Path(path).match(line[1:]) for line in let_through if line[0] == "!")


@pytest.mark.parametrize("other", ["cuda", "dev"])
def test_what_make_installs_one_after_the_other_agrees(other):
    """What is installed beside requirements.txt wants the same versions of all."""
    pins = dict(PIN.findall((ROOT / "requirements.txt").read_text()))
    assert "tensorflow" in pins
    beside = dict(PIN.findall((ROOT / f"requirements/{other}.txt").read_text()))
    assert beside | pins == beside


def test_the_tools_agree_with_cuda():
    """The tools are installed on top of TensorFlow with CUDA where there is a GPU."""
    cuda, tools = (
        dict(PIN.findall((ROOT / f"requirements/{name}.txt").read_text()))
        for name in ("cuda", "dev")
    )
    assert tools | {name: cuda[name] for name in cuda.keys() & tools.keys()} == tools


def test_make_help_lists_the_make_commands():
    """`make help` has a line for each public target."""
    makefile = (ROOT / "Makefile").read_text()
    (phony,) = re.findall(r"^\.PHONY: (.*)$", makefile, re.M)
    for target in set(phony.split()) - {"help"}:
        assert f'"make {target} ' in makefile
        assert re.search(rf"^{target}:", makefile, re.M)
