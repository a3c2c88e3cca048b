"""How many Python functions a small request calls on the event loop."""

import pytest

from bench.calls import CASES, counting

# On Python 3.11; later ones call fewer, as they inline comprehensions.
PYTHON_CALLS = {
    "JSON": 40,
    "JSON, each with an id": 43,
    "V2, binary tensors": 75,
    "JPEG, 32 x 32": 80,
    "gRPC, ModelInfer": 108,
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
