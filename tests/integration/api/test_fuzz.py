"""Thousands of bad requests to a real server, and to servers that they can hurt."""

from pathlib import Path

import pytest

from bench.fuzz import models
from bench.fuzz.run import fuzz, senders
from testing.server import serving
from tests.support.fragile import FAULTS, app_with

SEED = 7
THREADS = f"--threads={models.THREADS}"


@pytest.fixture(scope="module")
def pool():
    with senders() as pool:
        yield pool


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The models that need no framework."""
    folder = tmp_path_factory.mktemp("models")
    models.write_simulated(folder)
    return str(folder)


def test_bad_requests_hurt_nobody(pool, tmp_path):
    """1,000 of them are answered as documented, and cost no worker, memory or peer."""
    models.write_models(Path(tmp_path))
    with serving(THREADS, model_dir=str(tmp_path), **models.SETTINGS) as server:
        report = fuzz(server, pool, 1000, SEED)
    assert report.problems == []
    assert report.bad.total() >= 1000
    assert report.good_client_answers > 20


@pytest.mark.parametrize("fault", FAULTS)
def test_a_server_that_they_hurt_is_found_out(pool, folder, fault):
    """What a fault does to a server shows in the report."""
    options = {"app": app_with(fault), "check_exit": False}
    with serving(THREADS, **options, model_dir=folder, **models.SETTINGS) as server:
        report = fuzz(server, pool, 6000, SEED)
    assert any(FAULTS[fault][1] in problem for problem in report.problems)
