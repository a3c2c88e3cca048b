"""A server of one model, whose rollouts the test moves."""

import pytest

from app.repository.rollouts.traffic_mover import TrafficMover
from tests.support.rollout_server import RolloutServer


@pytest.fixture(name="server")
def _server(tmp_path, monkeypatch):
    # The test calls `tick`.
    monkeypatch.setattr(TrafficMover, "start", lambda _: None)
    server = RolloutServer(tmp_path)
    server.add(1)
    yield server
    server.close()
