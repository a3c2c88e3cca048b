"""The fuzzing of gRPC: what it makes of what it got."""

import pytest

from app.protocols.grpc_messages import message_class
from bench.fuzz.calls import note_in_stream
from bench.fuzz.report import Report


@pytest.mark.parametrize(
    ("text", "code", "problems"),
    [
        ("", "OK", 0),
        ("input 'x' is missing", "error in a stream", 0),
        ("internal error; the server's log has more", "error in a stream", 1),
        ("Traceback (most recent call last)", "error in a stream", 1),
        ("at /srv/app/rims/grpc/server.py", "error in a stream", 1),
    ],
)
def test_fuzzing_reads_the_errors_of_a_stream(text, code, problems):
    """An error in a stream counts, and is a problem if the client is not at fault."""
    report = Report()
    response = message_class("inference.ModelStreamInferResponse")(error_message=text)
    note_in_stream(report, response.SerializeToString(), b"sent")
    assert dict(report.statuses) == {code: 1}
    assert report.bad.total() == (1 if text else 0)
    assert len(report.problems) == problems
