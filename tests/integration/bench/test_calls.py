"""How many Python functions a small request calls on the event loop."""

import pytest

from bench.calls import CASES, counting

# On Python 3.11; later ones call fewer, as they inline comprehensions.
PYTHON_CALLS = {
    "JSON": 177,
    "JSON, each with an id": 195,
    "V2, binary tensors": 196,
    "JPEG, 32 x 32": 398,
    "gRPC, ModelInfer": 188,
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
    # The counts are those of requests: each was parsed and is in the metrics.
    assert any(name.endswith("Passage.encode") for name in python)
