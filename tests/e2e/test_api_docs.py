"""The commands of docs/api.md and their answers."""

import email
import json
import shutil

import pytest

from app.promotion.record import Records
from app.repository.rollouts.standing import digest_of
from app.repository.scan import fingerprint
from testing.server import serving, simulated_models
from tests.support.api_page import EXAMPLES, make_models
from tests.support.documents import run

# Stands for a text that differs each time.
ANY_TEXT = "..."
SIMULATED = {"base_ms": 1, "input_shape": [2], "outputs": 2}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return make_models(tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="module")
def server(models):
    with serving("--threads=4", model_dir=models, default_model="digits") as server:
        yield server


@pytest.fixture(scope="module")
def server_with_keys(tmp_path_factory):
    """A server of models of the same names: commands with a key ask for no answer."""
    folder = tmp_path_factory.mktemp("with_keys")
    models = simulated_models(folder, digits=SIMULATED, till=SIMULATED)
    (folder / "till" / "basket.toml").write_text("[labels]\nstable = 1\n[promotion]")
    first, second = (folder / "till" / number for number in "12")
    shutil.copytree(first, second)
    captured = tmp_path_factory.mktemp("captured")
    Records(captured).prove("till", 1, digest_of(first, fingerprint(first)))
    Records(captured).refuse(
        "till", 2, digest_of(second, fingerprint(second)), "it is worse"
    )
    keys = {"api_keys": "secret", "admin_keys": "admin"}
    settings = {"model_dir": models, "default_model": "digits", **keys}
    settings["capture_dir"] = str(captured)
    with serving("--threads=4", **settings) as server:
        yield server


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.command[-80:])
def test_command_gets_the_answer_shown(example, request):
    """The server answers the page's command as the page shows."""
    keys = "_with_keys" if "Authorization" in example.command else ""
    printed = run(example.command, request.getfixturevalue(f"server{keys}").port)
    if example.kind == "json":
        _compare(json.loads(printed), json.loads(example.answer))
    elif example.kind == "http":
        _compare_http(printed, example.answer)
    else:
        assert example.kind == "text"
        assert set(example.answer.splitlines()) <= set(printed.splitlines())


def _compare_http(printed, shown):
    """Compare the status, the headers that are shown, and the body."""
    given, expected = _message(printed), _message(shown)
    assert given[0] == expected[0]
    for name, value in expected[1].items():
        _compare(given[1][name], value)
    _compare(json.loads(given[2]), json.loads(expected[2]))


def _message(text):
    status, _, rest = text.partition("\n")
    head, _, body = rest.partition("\n\n")
    return status, dict(email.message_from_string(head).items()), body


def _compare(given, shown):
    if shown == ANY_TEXT:
        assert isinstance(given, str)
    elif isinstance(shown, dict):
        assert given.keys() == shown.keys()
        for name, value in shown.items():
            _compare(given[name], value)
    elif isinstance(shown, list):
        assert len(given) == len(shown)
        for one, other in zip(given, shown, strict=True):
            _compare(one, other)
    else:
        assert given == (
            pytest.approx(shown, abs=1e-5) if isinstance(shown, float) else shown
        )
