"""The containers of deploy/kubernetes and deploy/kserve, run as processes.

A stand-in for the kubelet starts them with their arguments and variables, asks their
probes, and ends them with preStop and SIGTERM. There is no cluster.
"""

import json
import shutil
import subprocess

import pytest

from testing.server import simulated_models
from tests.support import manifests as k8s
from tests.support.manifests import KSERVE, KSERVE_PYTHON, KUBERNETES, ROOT
from tests.support.pods import Endpoints, pod

CLIENT = ROOT / "tests" / "support" / "kserve_client.py"
ROWS = [[1.5, 2.0, 3.0], [4.0, 5.0, 6.0]]
# Echoes rows.
ECHO = {"base_ms": 20, "input_shape": [3], "outputs": 3}
BODY = json.dumps({"instances": [ROWS[0]]}).encode()


def test_rolling_update_loses_no_request(tmp_path):
    """Clients that learn of it late are answered while a pod runs preStop and ends."""
    (deployment,) = k8s.load(KUBERNETES / "base" / "deployment.yaml")
    spec = deployment["spec"]["template"]["spec"]
    models = simulated_models(tmp_path / "models", echo=ECHO)
    with (
        pod(deployment, model_dir=models) as old,
        pod(deployment, model_dir=models) as new,
    ):
        endpoints = Endpoints(BODY)
        endpoints.ready.append(old)
        with endpoints:
            endpoints.wait_for_answers(old, 50)
            endpoints.ready.append(new)
            endpoints.remove_later(old)
            # Not killed, and ended in order.
            assert old.end(spec["terminationGracePeriodSeconds"]) == 0
            endpoints.wait_for_answers(new, 50)
        assert endpoints.lost == []


def test_pod_is_not_ready_while_a_model_that_it_served_is_gone(tmp_path):
    """A new model that fails leaves the pod in; one that served takes it out alive."""
    (deployment,) = k8s.load(KUBERNETES / "base" / "deployment.yaml")
    models = simulated_models(tmp_path / "models", echo=ECHO)
    with pod(deployment, model_dir=models) as running:
        simulated_models(tmp_path / "models", broken={"outputs": 0})
        running.server.wait_until(
            lambda: b"not_ready" in running.server.request("GET", "/readyz").body, 30
        )
        assert running.probe("readiness")
        shutil.rmtree(tmp_path / "models" / "echo" / "1")
        running.server.wait_until(lambda: not running.probe("readiness"), 30)
        assert running.probe("liveness")


@pytest.mark.skipif(
    not KSERVE_PYTHON.exists(), reason="no .venv-kserve; `make test` installs it"
)
def test_kserve_client_against_the_serving_runtime(tmp_path):
    """V1 and V2 answer under the service's name, with readiness, JSON and binary."""
    (runtime,) = k8s.load(KSERVE / "serving-runtime.yaml")
    simulated_models(tmp_path, models=ECHO)
    # As KServe does; its client asks for the model `echo`.
    places = {"/mnt/models": str(tmp_path / "models"), "{{.Name}}": "echo"}
    with pod(runtime, places) as running:
        asked = subprocess.run(
            [KSERVE_PYTHON, CLIENT, f"http://127.0.0.1:{running.port}"],
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert asked.returncode == 0, asked.stderr
        answers = json.loads(asked.stdout)
        (service,) = k8s.load(KSERVE / "from-pvc.yaml")
        assert (
            running.end(service["spec"]["predictor"]["terminationGracePeriodSeconds"])
            == 0
        )
    v1, v2 = answers["v1"], answers["v2"]
    assert v1["predictions"] == v2["json"] == v2["binary"] == ROWS
    assert v1["live"] is v1["ready"] is v2["live"] is v2["ready"] is True
    assert v2["server is ready"] is True
