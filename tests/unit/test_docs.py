"""The pages list what exists, and their links lead somewhere."""

import ast
import re
import sys
from http import HTTPStatus
from types import ModuleType

import numpy as np
from prometheus_client import REGISTRY
from ruamel.yaml import YAML
from werkzeug.exceptions import HTTPException

from app import create_app, engines, errors
from app.settings import Settings, variables
from app.telemetry import Current
from tests.support import documents
from tests.support.api_page import EXAMPLES
from tests.support.documents import PAGES, ROOT
from tests.support.prometheus import rules

DOCS = ROOT / "docs"
MONITORING = DOCS / "monitoring.md"
METRICS = DOCS / "metrics.md"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
OPENAPI = ROOT / "app" / "web" / "openapi.json"


def described_in(term):
    """The pages that have a table row for a term, once for each row."""
    pages = [page for page in PAGES for row in documents.rows(page) if row[0] == term]
    return [documents.name(page) for page in pages]


def defines(file, name):
    path = ROOT / file
    return path.exists() and name in documents.symbols(path)


def test_links_and_anchors_resolve():
    """Each link to a file or a heading of the repository finds it."""
    missing = []
    for page in PAGES:
        for link in documents.links(page):
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            found = not anchor or (
                target.exists() and anchor in documents.anchors(target)
            )
            if not (target.exists() and found):
                missing.append(f"{documents.name(page)}: {link}")
    assert not missing


def test_named_files_exist():
    """Each path of the repository that a page names exists."""
    # An example names files to be written, and the changelog what was removed.
    absent = {"app/engines/matrix.py"}
    missing = [
        f"{page.name}: {path}"
        for page in PAGES
        if page.name != "CHANGELOG.md"
        for path in set(documents.paths(page)) - absent
        if not (ROOT / path).exists()
    ]
    assert not missing


def test_linked_functions_exist():
    """Each function that a link names is defined in the file that it leads to."""
    links = [each for page in PAGES for each in documents.symbol_links(page)]
    assert not [f"{file}: {name}" for name, file in links if not defines(file, name)]


def test_calls_in_the_design_exist():
    """Each call between socket and queue exists, the first in its module."""
    _, _, table = (DOCS / "design.md").read_text().partition("### Calls from")
    lines = re.findall(r"^\| `(app/[\w/]+\.py)` \| (.*) \|$", table, re.M)
    calls = [(module, re.findall(r"`([\w.]+)`", text)) for module, text in lines]
    assert calls
    assert not [(file, names) for file, names in calls if not defines(file, names[0])]
    defined = set().union(*map(documents.symbols, ROOT.glob("app/**/*.py")))
    named = {name for _, names in calls for name in names}
    assert not named - defined


def test_pages_are_short():
    """A page has at most 250 lines, apart from those with long tables."""
    limits = {"README.md": 130, "docs/api.md": 1000}
    for page in PAGES:
        limit = limits.get(documents.name(page), 250)
        assert len(page.read_text().splitlines()) <= limit, page


def test_the_index_lists_every_page():
    """docs/README.md links to each page of its folder."""
    linked = documents.links(DOCS / "README.md")
    assert {page.name for page in DOCS.glob("*.md")} - {"README.md"} <= set(linked)


def test_every_setting_is_described_once_with_its_default():
    """The settings reference has one row for each setting, with its real default."""
    shown = {row[0]: row[1].strip("`") for row in documents.rows(DOCS / "settings.md")}
    texts = {"model_dir": "models", "batching": "on", "user_code": "off"}
    texts |= {"max_body_bytes": "67108864"}
    texts |= {"batch_timeout_micros": "auto", "gpus": "all"}
    texts |= {"default_model": "the only one, else `digits"}
    for variable, field in variables().items():
        assert described_in(f"`{variable}`") == ["docs/settings.md"]
        default = getattr(Settings(), field.name)
        text = texts.get(field.name, str(default) if default else "")
        assert shown[f"`{variable}`"] == text


def test_every_route_has_an_example(tmp_path):
    """A command of the API reference requests each route of the application."""
    routes = create_app(Settings(model_dir=tmp_path)).flask.url_map
    adapter = routes.bind("127.0.0.1")
    shown = set()
    for example in EXAMPLES:
        try:
            rule, _ = adapter.match(example.path(), example.method(), return_rule=True)
        except HTTPException:
            continue
        shown.add(rule.rule)
    # The same view as under /v1/.
    assert shown == {rule.rule for rule in routes.iter_rules()} - {
        "/V1/<anything:rest>"
    }


def test_every_status_is_described_once():
    """The API reference has one row for each status that the server can send."""
    sent = set(re.findall(r'^ +"([1-5]\d\d)": ', OPENAPI.read_text(), re.M))
    sent |= {
        str(each.status) for each in vars(errors).values() if hasattr(each, "status")
    }
    sent.add("405")  # from Flask
    for file in [*ROOT.glob("app/rims/*.py"), *ROOT.glob("app/web/*.py")]:
        named = re.findall(r"HTTPStatus\.([A-Z_]+)", file.read_text())
        sent |= {str(HTTPStatus[each].value) for each in named}
    # A prediction always has a body.
    sent -= {"204", "304"}
    described = [row[0] for row in documents.rows(DOCS / "api.md") if row[0].isdigit()]
    assert sorted(described) == sorted(sent)


def samples():
    """The names of all samples that /metrics may have."""
    ends = ("", "_total", "_bucket", "_sum", "_count")
    return {f"{series.name}{end}" for series in all_series() for end in ends}


def all_series():
    """What /metrics may have."""
    return [*REGISTRY.collect(), *Current({}).collect()]


def test_every_series_is_described_once(tmp_path):
    """The metrics reference has one row for each series of Basket."""
    create_app(Settings(model_dir=tmp_path))
    ours = [each for each in all_series() if each.name.startswith("basket_")]
    assert len(ours) == 22
    for series in ours:
        name = f"{series.name}_total" if series.type == "counter" else series.name
        assert described_in(f"`{name}`") == ["docs/metrics.md"]


def test_every_rejection_reason_is_described():
    """The metrics reference has each reason for which a prediction is refused."""
    kinds, reasons = [errors.BasketError], set()
    while kinds:
        kinds += kinds.pop().__subclasses__()
        reasons |= {kind.reason for kind in kinds}
    _, _, table = METRICS.read_text().partition("| reason | status |")
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("|")]
    assert {each for cell in cells for each in re.findall(r"`(\w+)`", cell)} == reasons


def test_alert_rules_use_existing_series():
    """The rules use existing series, jobs that are scraped, and reasons."""
    yaml = YAML(typ="safe")
    (scraped,) = [yaml.load(text) for text in documents.blocks(MONITORING, "yaml")]
    texts = " ".join(rule["expr"] for rule in rules())
    series = set(re.findall(r"\bbasket_\w+", texts))
    assert len(series) == 7
    assert series <= samples()
    jobs = {job["job_name"] for job in scraped["scrape_configs"]}
    assert set(re.findall(r'job="([\w-]+)"', texts)) <= jobs
    (unseen,) = re.findall(r'\bup\{job=~"(.*?)"\} == 0', texts)
    assert all(re.fullmatch(unseen, job) for job in jobs)
    assert not {"not_ready", "stopping"} & set(re.findall(r"\w+", texts))
    for reason in "|".join(re.findall(r'reason=~"([^"]*)"', texts)).split("|"):
        assert f"`{reason.removesuffix('.*')}" in METRICS.read_text()


def test_queries_use_existing_series():
    """The page on metrics and alerts names existing series only."""
    assert set(re.findall(r"\bbasket_\w+", MONITORING.read_text())) <= samples()


def test_pytest_commands_name_existing_tests():
    """The contributing page runs tests that exist."""
    named = re.findall(r"pytest (\S+)", " ".join(documents.commands(CONTRIBUTING)))
    assert named
    assert not [path for path in named if not (ROOT / path).exists()]


def test_the_example_engine_serves(tmp_path, monkeypatch):
    """The engine of the contributing page answers a prediction over HTTP."""
    (code,) = documents.blocks(CONTRIBUTING, "python")
    assert len(code.splitlines()) <= 40
    (entry,) = re.findall(r'`("matrix\.npy": ".*?")`', CONTRIBUTING.read_text())
    module = ModuleType("app.engines.matrix")
    exec(code, module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for file, name in ast.literal_eval(f"{{{entry}}}").items():
        monkeypatch.setitem(engines.MODEL_FILES, file, name)
    (tmp_path / "m" / "1").mkdir(parents=True)
    np.save(tmp_path / "m" / "1" / "matrix.npy", np.float32([[1], [10]]))
    server = create_app(Settings(model_dir=tmp_path))
    loader = server.loader
    loader.start()
    try:
        assert loader.wait(timeout_s=30)
        response = server.flask.test_client().post(
            "/predict", json={"instances": [[3, 7]]}
        )
        assert response.json == {"predictions": [[73.0]]}
    finally:
        loader.close(timeout_s=5)
