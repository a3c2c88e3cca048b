"""Basket in a real Ray cluster of two nodes, deployed as by `serve deploy`."""

import os
import re
import shlex
import signal
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from testing.clients import at_once, in_parallel
from testing.server import ROOT, installed, running, simulated_models, wait_until
from tests.support.held_requests import HeldRequests
from tests.support.traffic import Traffic
from tests.support.user_code import add_service

if find_spec("ray") is None:
    pytest.skip("ray is not installed: requirements/ray.txt", allow_module_level=True)

from testing.ray_cluster import HEAD, OTHER, SPREAD, WITHIN_S, ray_cluster

ROW = [1, 2, 3, 4]
PREDICT = b'{"instances": [[1, 2, 3, 4]]}'
STEADY = {"base_ms": 100, "input_shape": [4], "outputs": 4}
# Ray's own max_ongoing_requests.
RAYS_DEFAULT = 5
# The requests of a node that died have failed by then: docs/ray.md.
NODE_FAILS_WITHIN_S = 10
LABELS = "[labels]\nstable = 1\ncanary = 2\n[traffic]\nstable = 1\n"
# Its process, beside the version in the header.
PROCESS = """
import os


def predict(model, batch):
    return [os.getpid() for _ in batch]
"""
STUCK = """
import threading


def predict(model, batch):
    if 13 in batch:
        threading.Event().wait()
    return batch
"""
# One replica per node, so that the other node continues to serve. By default, Ray looks
# at replicas every 10 s, and whether they are idle every 2 s.
TWO = {
    **{"num_replicas": 2, "max_replicas_per_node": 1},
    **{"health_check_period_s": 1, "graceful_shutdown_wait_loop_s": 0.2},
}


@pytest.fixture(scope="module")
def held_folder(tmp_path_factory):
    """Where the model of held requests writes."""
    return tmp_path_factory.mktemp("held")


@pytest.fixture(scope="module")
def cluster():
    """A proxy on the head, which sends requests to replicas on both nodes alike."""
    with ray_cluster(SPREAD) as nodes:
        yield nodes


@pytest.fixture(scope="module")
def arguments(tmp_path_factory, held_folder):
    """The models steady, held, and split, which has two versions."""
    folder = tmp_path_factory.mktemp("models")
    models = simulated_models(folder, steady=STEADY)
    HeldRequests.add_model(folder, held_folder)
    for version in (1, 2):
        add_service(folder, "split", PROCESS, version)
    (folder / "split" / "basket.toml").write_text(LABELS)
    settings = {"BASKET_USER_CODE": True}
    return {"model_dir": models, "default_model": "steady", "settings": settings}


@pytest.fixture
def held(two_replicas, held_folder):
    """Requests to hold, once the proxy sends requests to both replicas."""

    def answer() -> bool:
        return len({pid for pid, _ in split_answers(two_replicas)}) == 2

    wait_until(answer, WITHIN_S)
    return HeldRequests(held_folder, two_replicas.request)


@pytest.fixture
def two_replicas(cluster, arguments):
    """Two replicas, one on each node; tests in a row have the same ones."""
    cluster.deploy(arguments, **TWO)
    cluster.wait_for_replicas(2)
    return cluster


@pytest.fixture
def serving(cluster, arguments):
    """Two replicas, of whatever the test before has deployed."""
    if len(cluster.replicas()) != 2:
        cluster.deploy(arguments, **TWO)
        cluster.wait_for_replicas(2)
    return cluster


def split_answers(cluster) -> set[tuple[int, str]]:
    """Return the processes and versions of split that answer forty requests."""
    seen = set()

    def ask(client: int) -> None:
        path, headers = "/predict?model=split", {"X-Client-Id": str(client)}
        reply = cluster.request("POST", path, b'{"instances": [1]}', headers)
        assert reply.status == 200, reply.body
        (pid,) = reply.json()["predictions"]
        seen.add((pid, reply.headers["X-Model-Version"]))

    in_parallel(ask, 40)
    return seen


def in_flight(began_at: float, ended_at: float, traffic: Traffic) -> bool:
    """Return whether all failed requests were in flight between these times."""
    return all(
        sent <= ended_at and began_at <= ended for sent, ended in traffic.failed_spans
    )


def test_replicas_run_on_both_nodes(two_replicas):
    """Two replicas are two processes, one on each node."""
    replicas = two_replicas.replicas()
    assert {each["node_ip"] for each in replicas} == {HEAD, OTHER}


def test_response_has_the_id_of_the_request_once(two_replicas):
    """Ray's proxy passes the client's id on, or makes one, and adds it to responses."""
    for headers in ({}, {"X-Request-Id": "mine"}):
        reply = two_replicas.request("POST", "/predict", PREDICT, headers)
        (found,) = reply.headers.get_all("X-Request-Id")
        assert found == headers.get("X-Request-Id", found)


def test_batches_are_larger_than_rays_default(two_replicas):
    """A batch has more rows than Ray would have sent to a replica at a time."""
    replies, _ = at_once(two_replicas.port, [ROW] * 64)
    assert {reply.status for reply in replies} == {200}
    assert {tuple(reply.json()["predictions"][0]) for reply in replies} == {tuple(ROW)}
    sizes = [int(reply.headers["X-Batch-Size"]) for reply in replies]
    assert max(sizes) > RAYS_DEFAULT


def test_user_config_moves_traffic_without_a_restart(cluster, arguments, two_replicas):
    """A new split reaches both replicas, which stay, and an empty one is undone."""
    pids = {each["pid"] for each in two_replicas.replicas()}

    def wait_for_version(version: str) -> None:
        expected = {(pid, version) for pid in pids}
        wait_until(lambda: split_answers(cluster) == expected, WITHIN_S)

    wait_for_version("1")
    cluster.deploy(arguments, user_config={"traffic": {"split": {"canary": 1}}}, **TWO)
    wait_for_version("2")
    cluster.deploy(arguments, user_config={"traffic": {}}, **TWO)
    wait_for_version("1")
    assert {each["pid"] for each in two_replicas.replicas()} == pids


def test_metrics_have_the_same_names_with_a_prefix(two_replicas):
    """Each node exports the series of its replicas, with Basket's labels and Ray's."""
    assert two_replicas.request("POST", "/predict", PREDICT).status == 200
    of_steady = r'ray_{}\{{(?=.*deployment="Basket").*model="steady".*\}} ([0-9.e+]+)$'

    def value(series: str) -> float:
        found = re.findall(of_steady.format(series), two_replicas.metrics(), re.M)
        return max(map(float, found), default=0)

    def all_there() -> bool:
        names = ("requests_total", "infer_seconds_count", "infer_seconds_sum")
        return all(value(f"basket_{name}") > 0 for name in names)

    wait_until(all_there, WITHIN_S, two_replicas.metrics)
    text = two_replicas.metrics()
    assert "# TYPE ray_basket_requests_total counter" in text
    assert re.search(r'ray_basket_infer_seconds_bucket\{.*le="\+Inf"', text)


def test_killed_replica_fails_only_its_in_flight_requests(two_replicas, held):
    """After kill -9 of one the other replica answers, and Ray starts a new one."""
    pids = {each["node_ip"]: each["pid"] for each in two_replicas.replicas()}
    with Traffic(two_replicas.port, [ROW]) as traffic, held:
        held.wait_for(pids.values(), WITHIN_S)
        killed_at = time.monotonic()
        os.kill(pids[OTHER], signal.SIGKILL)
        answered = traffic.answers.total()
        wait_until(lambda: traffic.answers.total() > answered + 100, WITHIN_S)
        held.release()
        replicas = two_replicas.wait_for_replicas(2, without={pids[OTHER]})
    assert held.failed_at()
    assert held.answered_by() == {pids[HEAD]}
    assert in_flight(killed_at, killed_at, traffic), traffic.failed
    assert {each["node_ip"] for each in replicas} == {HEAD, OTHER}


def test_requests_of_a_killed_node_fail_in_time_and_no_others(two_replicas, held):
    """The other node answers all the while, and a new node gets a replica."""
    pids = {each["node_ip"]: each["pid"] for each in two_replicas.replicas()}
    with Traffic(two_replicas.port, [ROW]) as traffic, held:
        held.wait_for(pids.values(), WITHIN_S)
        two_replicas.kill_node()
        dead_at = time.monotonic()
        answered = traffic.answers.total()
        wait_until(lambda: traffic.answers.total() > answered + 100, WITHIN_S)
        wait_until(held.failed_at, WITHIN_S)
        held.release()
        two_replicas.add_node()
        two_replicas.wait_for_replicas(2, without={pids[OTHER]})
    assert held.answered_by() == {pids[HEAD]}
    failed_at = [*held.failed_at(), *(ended for _, ended in traffic.failed_spans)]
    assert max(failed_at) - dead_at < NODE_FAILS_WITHIN_S


def test_rolling_update_of_the_model_loses_no_request(two_replicas, held, tmp_path):
    """A replica drains a request longer than the deploy, and its successor serves."""
    newer = Path(simulated_models(tmp_path, steady=STEADY))
    (newer / "steady" / "1").rename(newer / "steady" / "7")
    old = {each["pid"] for each in two_replicas.replicas()}

    def is_draining() -> bool:
        return any(each["state"] == "STOPPING" for each in two_replicas.replicas())

    with Traffic(two_replicas.port, [ROW]) as traffic, held:
        held.wait_for(old, WITHIN_S)
        two_replicas.deploy({"model_dir": str(newer)}, **TWO)
        wait_until(is_draining, WITHIN_S)
        answered = traffic.answers.total()
        wait_until(lambda: traffic.answers.total() > answered + 20, WITHIN_S)
        held.release()
        wait_until(lambda: ("7", (1.0,)) in traffic.answers, WITHIN_S)
        two_replicas.wait_for_replicas(2, without=old)
    assert not held.failed_at()
    assert held.answered_by() == old
    assert not traffic.failed
    assert {version for version, _ in traffic.answers} == {"1", "7"}


def test_bad_arguments_fail_the_deploy_with_our_text(serving):
    """A deploy with a configuration error fails at once, and says what is wrong."""
    serving.deploy({"settings": {"BASKET_MAX_BATCH_SIZE": 0}})
    text = "BASKET_MAX_BATCH_SIZE='0': exp"
    # The message of the deploy before may still be there.
    wait_until(lambda: text in serving.wait("DEPLOY_FAILED")["message"], WITHIN_S)
    # The previous deployment continues to serve.
    assert serving.request("POST", "/predict", PREDICT).status == 200


def test_model_that_fails_to_load_replaces_no_replica(serving, tmp_path):
    """The deploy fails with the model's error, and a replica of before serves on."""
    broken = simulated_models(tmp_path, steady={"outputs": 0})
    serving.deploy({"model_dir": broken}, max_constructor_retry_count=1, **TWO)
    text = "ModelLoadError: steady: simulated.json: times must"

    def has_failed() -> bool:
        found = serving.wait("DEPLOY_FAILED")["deployments"]["Basket"]
        return text in found["message"]

    wait_until(has_failed, WITHIN_S)
    assert serving.request("POST", "/predict", PREDICT).status == 200


def test_stuck_replica_is_replaced(cluster, tmp_path):
    """A model that makes no progress fails the health check. Keys and prefix work."""
    add_service(tmp_path, "stuck", STUCK)
    settings = {
        "BASKET_USER_CODE": True,
        "BASKET_REQUEST_TIMEOUT_MS": 500,
        "BASKET_API_KEYS": "key",
    }
    cluster.deploy(
        {"model": str(tmp_path / "stuck"), "settings": settings},
        num_replicas=1,
        route_prefix="/shop",
        health_check_period_s=0.5,
    )
    (replica,) = cluster.wait_for_replicas(1)
    key = {"Authorization": "Bearer key"}

    def predict(value: int, headers: dict[str, str]) -> int:
        body = f'{{"instances": [{value}]}}'.encode()
        return cluster.request("POST", "/shop/predict", body, headers).status

    assert predict(1, {}) == 401
    assert predict(1, key) == 200
    assert cluster.request("GET", "/shop/docs").status == 200
    assert cluster.request("GET", "/shop/metrics").status == 401
    assert predict(13, key) == 504
    cluster.wait_for_replicas(1, without={replica["pid"]})
    assert predict(1, key) == 200


def test_autoscaling_follows_the_ongoing_requests(cluster, arguments):
    """One replica becomes three under load, and one again without."""
    cluster.deploy(
        arguments,
        autoscaling_config={
            "min_replicas": 1,
            "max_replicas": 3,
            "target_ongoing_requests": 2,
            "upscale_delay_s": 0.1,
            "downscale_delay_s": 0.1,
            # Both are 10 and 30, if not set.
            "metrics_interval_s": 0.5,
            "look_back_period_s": 1,
        },
    )
    cluster.wait_for_replicas(1)
    with Traffic(cluster.port, [ROW]) as traffic:
        cluster.wait_for_replicas(3)
    assert not traffic.failed
    cluster.wait_for_replicas(1)


@pytest.fixture
def _sigint():
    """Have programs begin with SIGINT: a shell's background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_sigint")
def test_serve_run_of_the_readme_answers_until_ctrl_c(cluster):
    """The command serves the demo model on a running cluster."""
    readme = (ROOT / "README.md").read_text()
    (command,) = re.findall(r"^\.venv/bin/(serve run .*)$", readme, re.M)
    program, *args = shlex.split(command)
    cluster.delete()
    wait_until(lambda: not cluster.application(), WITHIN_S)
    address = {"RAY_ADDRESS": cluster.address}
    started = running(
        [installed(program), *args], cluster.port, ready=False, environ=address
    )
    with started as server:
        # While it deploys, Ray may lose a Ctrl-C.
        server.wait_until(lambda: "is ready at" in server.log.read_text(), WITHIN_S)
        assert server.request("GET", "/readyz").status == 200
        body = (ROOT / "samples" / "7.json").read_bytes()
        (scores,) = server.request("POST", "/predict", body).json()["predictions"]
        assert max(range(10), key=scores.__getitem__) == 7
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(WITHIN_S) == 0
