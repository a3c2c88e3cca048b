"""EXAMPLE of service.py: `models check`, and the description of the API."""

import re

import pytest

from tests.support.commands import run_models
from tests.support.user_code import ECHO, add_neighbor, add_service, serving_code

AROUND = """
print("imported")


def preprocess(text):
    print("asked")
    return [len(text)]


def postprocess(row):
    return f"{row[0]:.0f} letters"


EXAMPLE = "what a nice day"
"""
ALONE = """
def predict(model, batch):
    return [text.upper() for text in batch]
"""
EXAMPLE = 'EXAMPLE = "nice"\n'
FAILS = ALONE + "EXAMPLE = 5\n"
BYTES = ALONE + 'EXAMPLE = b"nice"\n'
# Which JSON can't hold.
SET = """
def predict(model, batch):
    return [len(each) for each in batch]


EXAMPLE = {1, 2}
"""


def _check(models, name):
    return run_models(models, "check", name, user_code=True, max_batch_size=4)


def test_check_runs_example_and_times_its_row(tmp_path):
    """A service without a model file gets no random rows."""
    add_service(tmp_path, "alone", ALONE + EXAMPLE)
    status, output = _check(tmp_path, "alone")
    assert status == 0, output
    assert re.fullmatch(
        r"loading alone version 1 \.\.\.\n"
        r"python: \d+ bytes of files\n"
        r'EXAMPLE: answered in \d+\.\d\d ms: "NICE"\n'
        r"  timing batches of its row \.\.\.\n"
        r"    rows  ms a batch    ms a row\n"
        r"(       [124] +\d+\.\d\d +\d+\.\d{3}\n){3}",
        output,
    )


def test_check_shows_example_and_random_rows_of_a_model_file(tmp_path):
    """What service.py prints stands on lines of its own."""
    add_service(tmp_path, "around", AROUND, simulated=ECHO)
    status, output = _check(tmp_path, "around")
    assert status == 0, output
    lines = output.splitlines()
    assert {"imported", "asked"} <= {*lines}
    assert any(
        re.fullmatch(r'EXAMPLE: answered in [\d.]+ ms: "15 letters"', line)
        for line in lines
    )
    assert "  timing random rows ..." in lines
    assert lines[-1] == "each row's answer is its own: the model may be batched"


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ALONE, "service.py has predict, and no EXAMPLE = ... to run it on"),
        (
            FAILS,
            "its EXAMPLE: service.py: predict failed (AttributeError): AttributeError: "
            "'int' object has no attribute 'upper' (line 3)",
        ),
    ],
)
def test_check_fails_without_an_example_that_runs(tmp_path, code, error):
    """The exit status is 1, and the text says what is missing."""
    add_service(tmp_path, "m", code)
    status, output = _check(tmp_path, "m")
    assert status == 1
    assert output.endswith(f"Error: {error}\n")


@pytest.mark.parametrize("mode", ["worker", "shared"])
def test_description_of_the_api_has_the_example_of_each_model(tmp_path, mode):
    """Clients see requests that work; without one that JSON can hold, none.

    A model without a service.py has zeros that fit it.
    """
    add_neighbor(tmp_path)
    add_service(tmp_path, "alone", ALONE + EXAMPLE)
    add_service(tmp_path, "around", AROUND, simulated=ECHO)
    add_service(tmp_path, "bytes", BYTES)
    if mode == "worker":
        add_service(tmp_path, "set", SET)
    settings = {"model_process": mode, "api_keys": "secret"}
    with serving_code(tmp_path, **settings) as server:
        assert server.request("GET", "/openapi.json").status == 401
        server.headers["Authorization"] = "Bearer secret"
        description = server.request("GET", "/openapi.json").json()
    body = description["paths"]["/predict"]["post"]["requestBody"]["content"]
    assert body["application/json"]["examples"] == {
        "alone": {"value": {"instances": ["nice"]}},
        "around": {"value": {"instances": ["what a nice day"]}},
        "bytes": {"value": {"instances": [{"b64": "bmljZQ=="}]}},
        "neighbor": {"value": {"instances": [[0.0]]}},
    }


def test_long_example_is_not_in_readiness(tmp_path):
    """Probes read it each second; the description of the API has it."""
    text = "nice " * 2000
    add_service(tmp_path, "long", ALONE + f"EXAMPLE = {text!r}\n")
    add_service(tmp_path, "short", ALONE + EXAMPLE)
    with serving_code(tmp_path, default_model="short") as server:
        ready = server.request("GET", "/readyz").json()
        description = server.request("GET", "/openapi.json").json()
    assert ready["models"]["short"]["example"] == "nice"
    assert "example" not in ready["models"]["long"]
    body = description["paths"]["/predict"]["post"]["requestBody"]["content"]
    examples = body["application/json"]["examples"]
    assert examples["long"] == {"value": {"instances": [text]}}
    # That of the default model is first, for this and for the model to ask.
    assert [*examples] == ["short", "long"]
    names = description["components"]["parameters"]["ModelName"]["examples"]
    assert [*names] == ["short", "long"]
