"""Fuzzing gRPC: malformed calls to a real server."""

from bench.fuzz import models
from bench.fuzz.calls import SETTINGS, fuzz
from tests.support.grpc_calls import serving_grpc


def test_malformed_calls_fail_alone(tmp_path):
    """1,000 malformed calls get a code of the client's fault, and cost nobody else."""
    models.write_simulated(tmp_path)
    settings = {**SETTINGS, "model_dir": str(tmp_path)}
    with serving_grpc(models.THREADS, **settings) as (server, address):
        report = fuzz(server, address, 1000, seed=11)
    assert report.problems == []
    assert report.statuses["INVALID_ARGUMENT"] > 300
    assert report.statuses["OK"] > 10
