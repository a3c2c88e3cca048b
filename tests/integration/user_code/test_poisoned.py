"""A service.py that fails or misbehaves, beside a healthy neighbor."""

import json
import threading

import pytest

from testing.server import wait_until
from tests.support.user_code import (
    ECHO,
    add_neighbor,
    add_service,
    healthy_neighbor,
    predict,
    serving_code,
)

HEALTHY = "def postprocess(row):\n    return f'first {row[0]:.0f}'\n"
# By name: a service.py that can't be loaded, and what /readyz says of it.
UNLOADABLE = {
    "raises": (
        "import os\n\nraise ValueError('no vocabulary')\n",
        "service.py can't be imported: ValueError: no vocabulary (line 3)",
    ),
    "syntax": (
        "import os\n\ndef preprocess(text:\n    return text\n",
        "service.py can't be imported: SyntaxError: '(' was never closed (service.py, "
        "line 3)",
    ),
    "exits": (
        "import sys\n\n\nsys.exit(3)\n",
        "service.py can't be imported: SystemExit: 3 (line 4)",
    ),
    "load": (
        "def load(folder):\n    return 1 / 0\n",
        "service.py: load raised ZeroDivisionError: division by zero (line 2)",
    ),
    "exits-in-load": (
        "import sys\n\n\ndef load(folder):\n    sys.exit('bye')\n",
        "service.py: load raised SystemExit: bye (line 5)",
    ),
}
ROW = """
import sys


def predict(model, batch):
    if 13 in batch:
        raise RuntimeError("thirteen")
    if 14 in batch:
        sys.exit(1)
    return [value + 1 for value in batch]
"""
COUNT = """
def predict(model, batch):
    return [value + 1 for value in batch if value != 13]
"""
AROUND = """
import sys


def preprocess(value):
    if value == 13:
        raise KeyError("thirteen")
    if value == 14:
        sys.exit(1)
    return [value]


def postprocess(row):
    if row[0] == 15:
        raise KeyError("fifteen")
    if row[0] == 16:
        sys.exit(1)
    return row[0]
"""
PRINTS = """
print("import")


def load(folder):
    print("load")


def preprocess(value):
    print("preprocess", flush=True)
    return value


def predict(model, batch):
    print("predict", flush=True)
    return batch


EXAMPLE = 5
"""


@pytest.fixture(name="served", scope="module", params=["worker", "shared"])
def _served(tmp_path_factory, request):
    """A server of services that fail on some requests, and its folder of models."""
    models = tmp_path_factory.mktemp("models")
    add_neighbor(models)
    add_service(models, "row", ROW)
    add_service(models, "count", COUNT)
    add_service(models, "around", AROUND, simulated=ECHO)
    add_service(models, "prints", PRINTS)
    for name in UNLOADABLE:
        add_service(models, name, HEALTHY, simulated=ECHO)
    # Long enough that the rows of several clients share a batch.
    settings = {
        "default_model": "neighbor",
        "batch_timeout_micros": "50000",
        "model_process": request.param,
    }
    with serving_code(models, **settings) as server:
        yield server, models


@pytest.fixture(name="server")
def _server(served):
    return served[0]


def test_service_that_cannot_be_loaded_leaves_the_version_before_it(served):
    """/readyz names the file and the line, and version 1 answers on."""
    server, models = served
    with healthy_neighbor(server):
        for name, (code, _) in UNLOADABLE.items():
            add_service(models, name, code, 2, simulated=ECHO)

        def problems():
            return server.request("GET", "/readyz").json().get("problems", {})

        wait_until(lambda: len(problems()) == len(UNLOADABLE), 60, problems)
        assert problems() == {
            name: [f"version 2: {problem}"] for name, (_, problem) in UNLOADABLE.items()
        }
        assert server.request("GET", "/readyz").status == 200
        for name in UNLOADABLE:
            assert predict(server, name, [[5]]) == (200, ["first 5"])


def _at_once(server, name, values):
    """Return the answers to one request for each value, sent at once."""
    answers = {}
    start = threading.Barrier(len(values))

    def ask(value):
        start.wait()
        answers[value] = predict(server, name, [value])

    threads = [threading.Thread(target=ask, args=(value,)) for value in values]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def test_row_on_which_predict_fails_fails_alone(server):
    """The others of its batch are answered, whether it raises or exits."""
    with healthy_neighbor(server):
        answers = _at_once(server, "row", range(10, 20))
    assert answers.pop(13) == (500, "service.py: predict failed (RuntimeError)")
    assert answers.pop(14) == (500, "service.py: predict failed (SystemExit)")
    assert answers == {value: (200, [value + 1]) for value in answers}


def test_request_with_too_few_answers_is_told_both_numbers(server):
    """Rows that came with it in a batch are answered."""
    with healthy_neighbor(server):
        answers = _at_once(server, "count", range(10, 20))
        error = "service.py: predict gave 1 answers for 2 rows"
        # Rows of one request stay together.
        assert predict(server, "count", [1, 13]) == (500, error)
    error = "service.py: predict gave 0 answers for 1 rows"
    assert answers.pop(13) == (500, error)
    assert answers == {value: (200, [value + 1]) for value in answers}


def test_preprocess_and_postprocess_that_fail_fail_one_request(server):
    """The error names the function, the instance and the class of the error."""
    with healthy_neighbor(server):
        answers = _at_once(server, "around", range(12, 18))
    failed = "service.py: {} failed on {} ({})"
    first = "instances[0]"
    assert answers == {
        12: (200, [12]),
        13: (500, failed.format("preprocess", first, "KeyError")),
        14: (500, failed.format("preprocess", first, "SystemExit")),
        15: (500, failed.format("postprocess", "row 0", "KeyError")),
        16: (500, failed.format("postprocess", "row 0", "SystemExit")),
        17: (200, [17]),
    }
    log = server.log.read_text()
    assert "KeyError: 'thirteen' (line 7)" in log
    assert "KeyError: 'fifteen' (line 15)" in log


def test_prints_reach_the_log_and_not_the_answer(server):
    """What service.py prints stands in the server's output."""
    with healthy_neighbor(server):
        body = json.dumps({"instances": [1, 2]}).encode()
        reply = server.request("POST", "/v1/models/prints:predict", body)
    assert reply.body == b'{"predictions":[1,2]}'
    printed = server.log.read_text().splitlines()
    assert {"import", "load", "preprocess", "predict"} <= {*printed}
