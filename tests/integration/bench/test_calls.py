"""How many Python functions a small request calls on the event loop."""

import re

import pytest

from bench.calls import CASES, counting
from testing.server import ROOT
from tests.support import documents

# On Python 3.11; later ones call fewer, as they inline comprehensions.
PYTHON_CALLS = {
    "JSON": 39,
    "JSON, each with an id": 42,
    "V2, binary tensors": 74,
    "JPEG, 32 x 32": 79,
    "gRPC, ModelInfer": 107,
}
# What may be added before somebody has to say why.
MARGIN = 3


@pytest.fixture(scope="module")
def server():
    with counting() as running:
        yield running


@pytest.mark.parametrize("case", CASES)
def test_request_calls_no_more_functions_than_before(server, case):
    """Each call of a Python function takes time of the thread that serves all."""
    python = server.calls(case).python
    assert python.total() <= PYTHON_CALLS[case] + MARGIN, sorted(python.items())
    # The counts are those of requests, which were answered by a model.
    assert any(name.endswith("Predictor.finish") for name in python)


def test_design_names_the_calls_from_the_socket_to_the_queue_and_back(server):
    """The table has all calls of Basket but those behind the reply's bytes."""
    named = [
        f"{row[0].strip('`')}:{row[1].split('`')[1]}"
        for row in documents.rows(ROOT / "docs" / "design.md")
        if row[0].endswith(".py`") and row[1].startswith("`")
    ]
    to_the_queue = named.index("app/batching/job_queue.py:JobQueue.put") + 1
    assert to_the_queue <= 14
    assert len(named) - to_the_queue <= 8
    own = {
        name.partition(f"{ROOT}/")[2].replace(".<locals>", "")
        for name in server.calls("JSON").python
        if "/app/" in name
    }
    others = sorted(own - set(named))
    assert set(named) <= own
    # Listeners and metrics are told of a whole batch; its leases end.
    behind = r"tell|ended|count_calls|give_back|record_all|Overhead|MeanDeviation"
    assert [each for each in others if not re.search(behind, each)] == []
