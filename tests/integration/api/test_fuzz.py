"""Fuzzing: thousands of bad requests to a real server, and to faulty ones."""

from pathlib import Path

import pytest

from bench.fuzz import models
from bench.fuzz.run import fuzz
from testing.server import serving
from tests.support.fragile import FAULTS, app_with

SEED = 7


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Write the models that need no framework."""
    folder = tmp_path_factory.mktemp("models")
    models.write_simulated(folder)
    return str(folder)


def test_fuzzed_requests_are_answered_as_documented(tmp_path):
    """500 bad requests cost no worker, no memory and no other client."""
    models.write_models(Path(tmp_path))
    with serving(models.THREADS, model_dir=str(tmp_path), **models.SETTINGS) as server:
        report = fuzz(server, 500, SEED)
    assert report.problems == []
    assert report.bad.total() >= 500
    assert report.watch.answered > 20


@pytest.mark.parametrize("fault", FAULTS)
def test_fuzzing_finds_a_faulty_server(folder, fault):
    """The effect of a fault is in the report."""
    options = {"app": app_with(fault), "check_exit": False}
    with serving(
        models.THREADS, **options, model_dir=folder, **models.SETTINGS
    ) as server:
        report = fuzz(server, 6000, SEED)
    assert FAULTS[fault][1] in "\n".join(report.problems)
