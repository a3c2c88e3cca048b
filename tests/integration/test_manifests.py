"""The manifests of deploy/ fit the published schemas, the code and the image."""

import json
import re
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import kubernetes_validate
import pytest
from gunicorn.config import GracefulTimeout
from ruamel.yaml import YAML

from app import create_app
from app.settings import Settings, variables
from tests.support import documents
from tests.support import manifests as k8s
from tests.support.manifests import KSERVE, KSERVE_PYTHON, KUBECTL, KUBERNETES, ROOT

MANIFESTS = k8s.all_manifests()
BASE = [each for file in KUBERNETES.glob("base/*.yaml") for each in k8s.load(file)]
DEPLOYMENT = k8s.only(BASE, "Deployment")
POD = DEPLOYMENT["spec"]["template"]["spec"]
RUNTIME = k8s.only(MANIFESTS, "ServingRuntime")
SERVICES = [each for each in MANIFESTS if each["kind"] == "InferenceService"]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
NAME = {"app.kubernetes.io/name": "basket"}
# Kinds of operators, whose schemas are not Kubernetes' own.
OPERATORS = ("PodMonitor", "ScaledObject", "ServingRuntime", "InferenceService")
PAGE = ROOT / "docs" / "kubernetes.md"
# The page's overlay, and its patches.
EXAMPLE, *PATCHES = map(YAML(typ="safe").load, documents.blocks(PAGE, "yaml"))
with_kubectl = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")
with_kserve = pytest.mark.skipif(
    not KSERVE_PYTHON.exists(), reason="no .venv-kserve; `make test` installs it"
)
both_containers = pytest.mark.parametrize(
    "manifest", [DEPLOYMENT, RUNTIME], ids=lambda each: each["kind"]
)


def check_schema(manifest):
    """Raise for an unknown field, a wrong type or a missing one."""
    newest = kubernetes_validate.latest_version()
    kubernetes_validate.validate(manifest, newest, strict=True)


def render_beside_clone(folder: Path, **changes: Any) -> list[k8s.Manifest]:
    """Render the page's overlay with changes, in a folder beside a clone."""
    shutil.copytree(KUBERNETES, folder / "basket" / "deploy" / "kubernetes")
    (folder / "mine").mkdir()
    text = json.dumps(EXAMPLE | changes)
    (folder / "mine" / "kustomization.yaml").write_text(text)
    return k8s.render(folder / "mine")


def test_manifests_fit_kubernetes_schemas():
    """kubernetes-validate finds no problem in any manifest of Kubernetes' own kinds."""
    own = [each for each in MANIFESTS if each["kind"] not in OPERATORS]
    assert len(own) == 7
    for manifest in own:
        check_schema(manifest)


@pytest.fixture(name="problems", scope="module")
def _problems():
    """Problems of the manifests of operators' kinds, and of two with mistakes.

    In one call, as the models take seconds to import.
    """
    others = [each for each in MANIFESTS if each["kind"] in OPERATORS]
    wrong = json.loads(json.dumps([RUNTIME, k8s.only(MANIFESTS, "PodMonitor")]))
    wrong[0]["spec"]["containers"][0]["livenessProbe"]["period"] = 1
    del wrong[0]["spec"]["containers"][0]["name"]
    wrong[1]["spec"]["podMetricsEndpoints"][0]["prot"] = "http"
    *found, of_runtime, of_monitor = k8s.operators_problems([*others, *wrong])
    return found, of_runtime, of_monitor


@with_kserve
def test_manifests_fit_the_operators_types(problems):
    """KServe's models, and those of KEDA and Prometheus' operator, know every field."""
    found, *_ = problems
    assert found == [[]] * 5


@with_kserve
def test_unknown_field_of_an_operator_s_kind_is_found(problems):
    """The check names a field that no type has, and one that is missing."""
    _, of_runtime, of_monitor = problems
    assert len(of_runtime) == 2
    assert any("livenessProbe.period is unknown" in each for each in of_runtime)
    assert len(of_monitor) == 1
    assert "prot" in of_monitor[0]


@with_kubectl
@pytest.mark.parametrize("resource", ["base", "gpu"])
@pytest.mark.parametrize("component", ["hpa", "keda"])
def test_variants_render_with_either_autoscaler(tmp_path, resource, component):
    """Kubectl renders them, and Deployment and autoscaler fit each other."""
    clone = "../basket/deploy/kubernetes"
    assert EXAMPLE["resources"] == [f"{clone}/base"]
    assert EXAMPLE["components"] == [f"{clone}/hpa"]
    named = {
        "resources": [f"{clone}/{resource}"],
        "components": [f"{clone}/{component}"],
    }
    rendered = render_beside_clone(tmp_path, **named)
    for manifest in rendered:
        if manifest["kind"] not in OPERATORS:
            check_schema(manifest)
    deployment = k8s.only(rendered, "Deployment")
    tag = {"base": "cpu", "gpu": "cuda"}[resource]
    image = f"registry.example.com/basket:{tag}"
    assert k8s.container(deployment)["image"] == image
    # The autoscaler has the number.
    assert "replicas" not in deployment["spec"]
    scaler = {"hpa": "HorizontalPodAutoscaler", "keda": "ScaledObject"}[component]
    target = k8s.only(rendered, scaler)["spec"]["scaleTargetRef"]
    assert target["name"] == deployment["metadata"]["name"]


@with_kubectl
def test_gpu_variant_adds_a_gpu_and_changes_nothing_else():
    """The Deployment differs in its image, resources, tolerations and rollout."""
    gpu = k8s.only(k8s.render(KUBERNETES / "gpu"), "Deployment")
    container = k8s.container(gpu)
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    (tolerated,) = gpu["spec"]["template"]["spec"].pop("tolerations")
    assert (tolerated["key"], tolerated["effect"]) == ("nvidia.com/gpu", "NoSchedule")
    # A surge would ask for one more GPU.
    assert gpu["spec"]["strategy"]["rollingUpdate"]["maxSurge"] == 0
    assert container["image"] == "basket:cuda"
    base = k8s.only(k8s.render(KUBERNETES / "base"), "Deployment")
    for each in (gpu, base):
        del each["spec"]["strategy"]
        del k8s.container(each)["resources"], k8s.container(each)["image"]
    assert gpu == base


@with_kubectl
def test_documented_patches_mount_keys_and_models(tmp_path):
    """Both apply together; paths are those of the image, and variables are settings."""
    patches = [patch for block in PATCHES for patch in block["patches"]]
    assert len(patches) == 2
    rendered = render_beside_clone(tmp_path, patches=patches)
    deployment = k8s.only(rendered, "Deployment")
    check_schema(deployment)
    container = k8s.container(deployment)
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    volumes = deployment["spec"]["template"]["spec"]["volumes"]
    assert {each["name"] for each in volumes} == set(mounts)
    (workdir,) = re.findall(r"^WORKDIR (.*)$", DOCKERFILE, re.M)
    assert mounts["models"] == f"{workdir}/{Settings().model_dir}"
    (variable,) = container["env"]
    assert variable["name"] in variables()
    (command,) = re.findall(r"--from-file=(\w+)", PAGE.read_text())
    assert variable["value"] == f"{mounts['keys']}/{command}"


@with_kubectl
def test_kustomization_has_each_file_of_its_folder():
    """Rendered, the base has as many manifests as its files."""
    manifests = [each for each in BASE if each["kind"] != "Kustomization"]
    rendered = k8s.render(KUBERNETES / "base")
    expected = sorted(json.dumps(each, sort_keys=True) for each in manifests)
    assert sorted(json.dumps(each, sort_keys=True) for each in rendered) == expected


def test_labels_select_the_pods():
    """Each selector of deploy/kubernetes matches the labels of the pods."""
    assert DEPLOYMENT["spec"]["template"]["metadata"]["labels"] == NAME
    (spread,) = POD["topologySpreadConstraints"]
    selectors = [
        spread["labelSelector"]["matchLabels"],
        DEPLOYMENT["spec"]["selector"]["matchLabels"],
        k8s.only(BASE, "Service")["spec"]["selector"],
        k8s.only(BASE, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        k8s.only(BASE, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
        k8s.only(MANIFESTS, "PodMonitor")["spec"]["selector"]["matchLabels"],
    ]
    assert selectors == [NAME] * 6


@both_containers
def test_containers_listen_on_their_port(manifest):
    """The port is that of --bind, in the arguments or in the image."""
    container = k8s.container(manifest)
    given = " ".join(
        [*re.findall(r"--bind=\S+?(?=\")", DOCKERFILE), *container["args"]]
    )
    *_, bind = re.findall(r"--bind=0\.0\.0\.0:(\d+)", given)
    (port,) = container["ports"]
    assert port["containerPort"] == int(bind)


def test_service_policy_and_monitor_name_the_port():
    """All of them use the name of the container's port."""
    (port,) = k8s.container(DEPLOYMENT)["ports"]
    (service,) = k8s.only(BASE, "Service")["spec"]["ports"]
    (rule,) = k8s.only(BASE, "NetworkPolicy")["spec"]["ingress"]
    (monitor,) = k8s.only(MANIFESTS, "PodMonitor")["spec"]["podMetricsEndpoints"]
    named = [service["targetPort"], rule["ports"][0]["port"], monitor["port"]]
    assert named == [port["name"]] * 3
    # KServe sends requests to this one unless a port is named.
    (of_runtime,) = k8s.container(RUNTIME)["ports"]
    scraped = RUNTIME["spec"]["annotations"]["prometheus.kserve.io/port"]
    assert (of_runtime["containerPort"], scraped) == (8080, "8080")


@both_containers
def test_probes_ask_existing_routes(tmp_path, manifest):
    """Startup and liveness ask for liveness, readiness for readiness, on its port."""
    container = k8s.container(manifest)
    (port,) = container["ports"]
    probes = {
        name.removesuffix("Probe"): probe["httpGet"]
        for name, probe in container.items()
        if name.endswith("Probe")
    }
    assert {each["port"] for each in probes.values()} <= set(port.values())
    asked = {name: probe["path"] for name, probe in probes.items()}
    live = {"/healthz", "/v2/health/live"}
    assert {asked["startup"], asked["liveness"]} <= live
    assert asked["readiness"] in {"/readyz", "/v2/health/ready"}
    client = create_app(Settings(model_dir=tmp_path)).flask.test_client()
    # Without models it lives, and is not ready.
    statuses = {name: client.get(path).status_code for name, path in asked.items()}
    assert statuses == {"startup": 200, "liveness": 200, "readiness": 503}


def test_grace_period_covers_pre_stop_and_graceful_timeout():
    """The kubelet kills only what has not ended within both, and a little."""
    predictors = [each["spec"]["predictor"] for each in SERVICES]
    assert len(predictors) == 2
    pods = [(POD, DEPLOYMENT), *((predictor, RUNTIME) for predictor in predictors)]
    for pod, manifest in pods:
        container = k8s.container(manifest)
        assert not [arg for arg in container["args"] if "graceful-timeout" in arg]
        pre_stop_s = container["lifecycle"]["preStop"]["sleep"]["seconds"]
        needed_s = pre_stop_s + GracefulTimeout.default
        assert 2 < pod["terminationGracePeriodSeconds"] - needed_s < 10


def test_liveness_probe_leaves_time_for_a_health_check():
    """A pod is restarted for failures, not for one slow answer."""
    probe = k8s.container(DEPLOYMENT)["livenessProbe"]
    assert probe["timeoutSeconds"] <= probe["periodSeconds"]
    assert "failureThreshold" not in probe  # three


@both_containers
def test_containers_run_without_rights(manifest):
    """No root, no capability, no write access, and the runtime's seccomp profile."""
    container = k8s.container(manifest)
    pod = POD["securityContext"] if manifest is DEPLOYMENT else {}
    rights = pod | container["securityContext"]
    assert rights["runAsNonRoot"] is True
    assert rights["allowPrivilegeEscalation"] is False
    assert rights["capabilities"] == {"drop": ["ALL"]}
    assert rights["readOnlyRootFilesystem"] is True
    assert rights["seccompProfile"] == {"type": "RuntimeDefault"}


def test_user_is_that_of_the_image():
    """The uid is the same number everywhere; a name could not be checked."""
    (user,) = re.findall(r"^USER (\d+):(\d+)$", DOCKERFILE, re.M)
    rights = POD["securityContext"]
    asked = [str(rights[name]) for name in ("runAsUser", "runAsGroup")]
    assert tuple(asked) == user
    assert rights["fsGroup"] == rights["runAsGroup"]
    assert f"--uid {user[0]} " in DOCKERFILE


@both_containers
def test_arguments_leave_the_entry_point_of_the_image(manifest):
    """They are those of the image, and `command` would replace its init."""
    container = k8s.container(manifest)
    assert "command" not in container
    (of_image,) = re.findall(r"^CMD (\[.*\])$", DOCKERFILE, re.M)
    others = [arg for arg in container["args"] if not arg.startswith("--bind=")]
    assert others == json.loads(of_image)


def test_pods_have_no_variables_that_look_like_settings():
    """Kubernetes would set BASKET_PORT for the Service of that name."""
    assert k8s.only(BASE, "Service")["metadata"]["name"] == "basket"
    assert POD["enableServiceLinks"] is False


def test_runtime_sets_existing_settings():
    """Each variable is a setting; the model lies where KServe puts it."""
    given = {each["name"]: each["value"] for each in k8s.container(RUNTIME)["env"]}
    assert set(given) <= set(variables())
    assert given["BASKET_MODEL"] == "/mnt/models"
    # The service's name, by which clients ask.
    assert given["BASKET_MODEL_NAME"] == "{{.Name}}"


def test_inference_services_name_runtime_format_and_account():
    """They use the runtime of the folder, and what S3 needs is in the same file."""
    formats = [each["name"] for each in RUNTIME["spec"]["supportedModelFormats"]]
    for service in SERVICES:
        model = service["spec"]["predictor"]["model"]
        assert model["runtime"] == RUNTIME["metadata"]["name"]
        assert model["modelFormat"]["name"] in formats
    sources = [each["spec"]["predictor"]["model"]["storageUri"] for each in SERVICES]
    assert sorted(urlsplit(each).scheme for each in sources) == ["pvc", "s3"]
    of_s3 = k8s.load(KSERVE / "from-s3.yaml")
    account, secret = k8s.only(of_s3, "ServiceAccount"), k8s.only(of_s3, "Secret")
    predictor = k8s.only(of_s3, "InferenceService")["spec"]["predictor"]
    assert predictor["serviceAccountName"] == account["metadata"]["name"]
    assert account["secrets"] == [{"name": secret["metadata"]["name"]}]


def test_scaled_object_asks_for_the_busy_share():
    """The query is that of the pages, over a range that has four samples."""
    (trigger,) = k8s.only(MANIFESTS, "ScaledObject")["spec"]["triggers"]
    query = trigger["metadata"]["query"]
    form = re.compile(r'sum\(rate\((\w+)\{pod=~"(.*)"\}\[1m\]\)\)')
    series, pods = form.fullmatch(query).groups()
    assert f"`rate({series}[1m])`" in (ROOT / "docs" / "monitoring.md").read_text()
    assert f"```\n{query}\n```" in PAGE.read_text()
    # Kubernetes names the pods of a Deployment so.
    assert re.fullmatch(pods, f"{DEPLOYMENT['metadata']['name']}-6d4b75cb6d-x7k2p")
    (endpoint,) = k8s.only(MANIFESTS, "PodMonitor")["spec"]["podMetricsEndpoints"]
    assert int(endpoint["interval"].removesuffix("s")) * 4 <= 60
    assert endpoint["path"] == "/metrics"
    assert 0 < float(trigger["metadata"]["threshold"]) < 1


def test_scaled_object_runs_the_most_pods_when_prometheus_fails():
    """Without a metric no pod is taken away, after a minute as the page says."""
    spec = k8s.only(MANIFESTS, "ScaledObject")["spec"]
    fallback = spec["fallback"]
    assert fallback["replicas"] == spec["maxReplicaCount"]
    assert fallback["failureThreshold"] * spec["pollingInterval"] == 60
    assert "stays as it is for a minute. Then `fallback`" in PAGE.read_text()
    # KEDA has a fallback for averages over the pods only, which is its default.
    assert "metricType" not in spec["triggers"][0]


def test_readme_builds_and_deploys_the_image_of_the_deployment():
    """The tag is that of the manifest, and the applied folder is the base."""
    readme = (ROOT / "README.md").read_text()
    (tag,) = re.findall(r"`docker build --build-arg DEVICE=cpu --tag (\S+) \.`", readme)
    assert tag == k8s.container(DEPLOYMENT)["image"]
    (applied,) = re.findall(r"`kubectl apply --kustomize (\S+)`", readme)
    assert ROOT / applied == KUBERNETES / "base"


def test_both_autoscalers_have_the_same_bounds():
    """Two pods at least, so that one can end while the other serves."""
    hpa = k8s.only(MANIFESTS, "HorizontalPodAutoscaler")["spec"]
    keda = k8s.only(MANIFESTS, "ScaledObject")["spec"]
    bounds = (hpa["minReplicas"], hpa["maxReplicas"])
    assert bounds == (keda["minReplicaCount"], keda["maxReplicaCount"])
    assert hpa["minReplicas"] == DEPLOYMENT["spec"]["replicas"] == 2
    assert k8s.only(BASE, "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
