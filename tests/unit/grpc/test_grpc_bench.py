"""The benchmark and the fuzzing of gRPC: what they write of what they got."""

import json

import numpy as np
import pytest

from app.grpc.messages import message_class
from bench import grpc as bench
from bench.fuzz.calls import Report, note_in_stream

RATES = {"ModelInfer": [100.0, 200.0, 400.0], "other": [50.0, 120.0, 200.0]}


def test_line_has_medians_and_ranges():
    """Shares are those of ModelInfer in the same round."""
    assert bench.line_of("other", RATES) == (
        *("other", "120", "50 to 200"),
        *("0.50", "0.50 to 0.60"),
    )
    assert bench.line_of("ModelInfer", RATES)[3:] == ("1.00", "1.00 to 1.00")


def test_each_kind_of_request_has_the_same_row():
    """JSON of either form, Predict and ModelInfer have the values to the bit."""
    row = np.random.default_rng(0).random(4096, np.float32)
    made = bench.bodies(row)
    for kind in ("JSON", "JSON, shortest digits"):
        (found,) = json.loads(made[kind])["instances"]
        assert np.array(found, np.float32).tobytes() == row.tobytes()
    infer = message_class("inference.ModelInferRequest").FromString(
        made["ModelInfer"][5:]
    )
    assert infer.raw_input_contents[0] == row.tobytes()
    predict = message_class("tensorflow.serving.PredictRequest").FromString(
        made["Predict"][5:]
    )
    assert predict.inputs["input"].tensor_content == row.tobytes()
    for kind in ("ModelInfer", "Predict"):
        flag, size = made[kind][0], int.from_bytes(made[kind][1:5])
        assert (flag, size) == (0, len(made[kind]) - 5)


@pytest.mark.parametrize(
    ("text", "code", "problems"),
    [
        ("", "OK", 0),
        ("input 'x' is missing", "error in a stream", 0),
        ("internal error; the server's log has more", "error in a stream", 1),
        ("Traceback (most recent call last)", "error in a stream", 1),
        ("at /srv/app/grpc/server.py", "error in a stream", 1),
    ],
)
def test_fuzzing_reads_the_errors_of_a_stream(text, code, problems):
    """An error in a stream counts, and is a problem if the client is not at fault."""
    report = Report()
    response = message_class("inference.ModelStreamInferResponse")(error_message=text)
    note_in_stream(report, response.SerializeToString(), b"sent")
    assert dict(report.codes) == {code: 1}
    assert report.bad() == (1 if text else 0)
    assert len(report.problems) == problems
