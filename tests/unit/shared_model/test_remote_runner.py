"""The choice of a model process for a job, and values that cross processes."""

import itertools
import socket

import pytest

from app.batching.model_log import ModelLog
from app.engines.python.service import Service
from app.errors import (
    Late,
    ModelFailed,
    ModelProcessGone,
    NotReady,
    QueueFull,
    RefusedInput,
    Stopping,
    TooLarge,
)
from app.repository.served import ServedModel
from app.settings import Settings
from app.settings.image_config import ImageClass, ImageConfig
from app.settings.model_config import ModelConfig
from app.shared_model import catalog_json, error_json
from app.shared_model.channel import Channel
from app.shared_model.connection import Connection
from app.shared_model.remote_runner import RemoteRunner
from app.shared_model.row_count import RowCount
from app.user_code.user_code import UserCode
from tests.support.engines import Echo
from tests.support.jobs import job, outcome, outputs
from tests.support.shared_model import TIMEOUT_S, Peer, in_thread


class Process:
    """A model process that only receives; its channel is never started."""

    def __init__(self, ours, theirs):
        self.rows = RowCount()
        self.peer = Peer(Connection(theirs))
        self.channel = Channel(Connection(ours), self.rows)

    def received_job(self):
        return self.peer.receive().meta["predict"] == ["m", 1]


@pytest.fixture(name="processes")
def _processes():
    pairs = [socket.socketpair() for _ in range(2)]
    yield [Process(*pair) for pair in pairs]
    for sock in itertools.chain(*pairs):
        sock.close()


@pytest.fixture(name="runner")
def _runner(processes):
    runner = RemoteRunner("m", 1)
    for process in processes:
        runner.add(process.channel)
    return runner


def test_job_goes_to_the_process_with_the_fewest_rows(runner, processes):
    """A process that was removed gets no job."""
    processes[0].rows.add(2)
    runner.submit(job(1.0))
    assert processes[1].received_job()
    processes[1].rows.add(3)
    runner.submit(job(1.0))
    assert processes[0].received_job()
    runner.remove(processes[0].channel, 0)
    runner.submit(job(1.0))
    assert processes[1].received_job()


def test_runner_is_idle_while_no_process_has_rows(runner, processes):
    """Neither a job of this worker's, nor rows of others; a dead process has none."""
    assert runner.is_idle()
    processes[0].rows.add(1)
    assert not runner.is_idle()
    processes[0].rows.add(-1)
    one = job(1.0)
    runner.submit(one)
    assert not runner.is_idle()
    processes[0].rows.add(1)
    for process in processes:
        process.channel.close(ModelProcessGone("died"))
    assert isinstance(outcome(one), ModelProcessGone)
    assert runner.is_idle()


def test_dead_process_gets_no_job_while_another_one_lives(runner, processes):
    """If all processes are dead, a job fails with the error of the first one."""
    dead, living = processes
    living.rows.add(3)
    dead.channel.close(ModelProcessGone("died"))
    runner.submit(job(1.0))
    assert living.received_job()
    living.channel.close(Stopping("stopped"))
    runner.remove(living.channel, 0)
    refused = job(1.0)
    runner.submit(refused)
    with pytest.raises(ModelProcessGone, match="died"):
        outputs(refused)


def test_job_counts_until_its_end_if_its_process_returns(processes):
    """A job under way at a removal is counted down once, when it fails."""
    channel, runner = processes[0].channel, RemoteRunner("m", 1)
    runner.add(channel)
    late = job(1.0)
    runner.submit(late)
    runner.remove(channel, 0)
    runner.add(channel)
    channel.close(Late("too late"))
    in_thread(lambda: runner.remove(channel, 2 * TIMEOUT_S))()
    with pytest.raises(Late):
        outputs(late)


def test_row_count_is_shared_through_its_file_descriptor():
    """The number can be read after the descriptor is closed."""
    mine = RowCount()
    theirs = RowCount(mine.fd)
    mine.add(5)
    assert theirs.rows() == 5
    mine.add(-3)
    assert theirs.rows() == 2
    mine.close()
    assert theirs.rows() == 2


@pytest.mark.parametrize(
    "error",
    [
        QueueFull("no room", 7),
        TooLarge("too many rows"),
        ModelFailed("the model failed"),
        RefusedInput("no such id"),
        Stopping("going"),
        NotReady("loading", 3),
    ],
)
def test_error_crosses_with_class_text_and_retry_after(error):
    """An error of Basket's is the same on the other side."""
    rebuilt = error_json.from_json(error_json.to_json(error))
    assert type(rebuilt) is type(error)
    assert str(rebuilt) == str(error)
    assert vars(rebuilt) == vars(error)


def test_unknown_error_crosses_without_details():
    """A foreign error, or one of an unknown class, is an internal error."""
    values = error_json.to_json(ValueError("/secret/path"))
    assert "secret" not in str(error_json.from_json(values))
    assert error_json.from_json({"error": "NoSuchClass", "text": "x"}).status == 500


def test_version_crosses_with_settings_and_image_config():
    """All that a codec needs is the same on the other side."""
    image = ImageConfig((2, 3), "RGB", "0..1", "nearest", (ImageClass("0", "tent"),))
    own = Settings(
        max_batch_size=8, allowed_batch_sizes=(4, 8), constants='{"train": false}'
    )
    config = ModelConfig(own, {"stable": 1}, {"stable": 2.0}, image)
    served = ServedModel("m", 1, "echo", Echo().signatures, config, None, None)
    values = catalog_json.version_to_json(served)
    crossed = catalog_json.version_from_json("m", 1, values, Settings(), None, None)
    assert vars(crossed) == vars(served)


@pytest.mark.parametrize(
    ("code", "crosses"),
    [("import json", False), ("EXAMPLE = 1", True), ("def load(folder): ...", True)],
)
def test_service_that_only_imports_does_so_in_the_model_process(
    tmp_path, code, crosses
):
    """Web workers do not import a framework's operations."""
    (tmp_path / "service.py").write_text(code)
    signatures = Echo().signatures
    user_code = UserCode(
        Service(tmp_path), signatures, ModelLog("m", 1), is_packed=True
    )
    config = ModelConfig(Settings())
    served = ServedModel("m", 1, "echo", signatures, config, None, None, user_code)
    found = catalog_json.version_to_json(served)["service"]
    assert found == (str(tmp_path) if crosses else None)
