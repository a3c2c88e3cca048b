"""Who may call what over gRPC: keys, TLS, health and reflection of a real server."""

import contextlib
import json
import shutil
import socket
import subprocess
from dataclasses import replace

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from testing.memory import peak_mib_of
from testing.server import serving, simulated_models, wait_until
from tests.support.grpc_calls import (
    ECHO,
    failure,
    infer,
    serving_grpc,
    triton_client,
)

CLIENT = {"authorization": "Bearer client"}
ADMIN = {"authorization": "Bearer admin"}
LARGE_MIB = 48
# Methods that need a key: those that predict, and others.
NEED_KEYS = [
    "/tensorflow.serving.PredictionService/Predict",
    "/inference.GRPCInferenceService/ModelInfer",
    "/inference.GRPCInferenceService/ModelStreamInfer",
    "/tensorflow.serving.PredictionService/GetModelMetadata",
    "/tensorflow.serving.ModelService/GetModelStatus",
    "/inference.GRPCInferenceService/ServerMetadata",
    "/inference.GRPCInferenceService/RepositoryModelUnload",
]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return simulated_models(tmp_path_factory.mktemp("models"), m=ECHO)


@pytest.fixture(scope="module", params=["worker", "shared"])
def locked(request, models):
    """Run a server with keys; with a shared model, two web workers serve gRPC."""
    settings = {"api_keys": "client", "admin_keys": "admin", "model_dir": models}
    workers = "--workers=2" if request.param == "shared" else "--workers=1"
    options = {**settings, "model_process": request.param}
    with serving_grpc(workers, **options) as running:
        yield running


@pytest.mark.parametrize("method", NEED_KEYS)
def test_stranger_is_refused_before_the_message_is_received(locked, method):
    """A call without a key is UNAUTHENTICATED, and its message takes no memory."""
    server, address = locked
    with contextlib.ExitStack() as stack:
        peaks = [stack.enter_context(peak_mib_of(pid)) for pid in server.workers()]
        channel = stack.enter_context(grpc.insecure_channel(address))
        for sent in (b"", b"\xff", bytes(LARGE_MIB << 20)):
            code, text = failure(channel.unary_unary(method), sent)
            assert (code, "Bearer KEY" in text) == ("UNAUTHENTICATED", True)
        assert sum(peak() for peak in peaks) < LARGE_MIB / 2


def test_refused_calls_are_counted(locked):
    """Calls without a key are in the metrics as requests over HTTP are."""
    server, address = locked
    server = replace(server, headers={"authorization": "Bearer client"})
    rejected = 'basket_rejected_total{reason="unauthorized"}'
    before = server.metric(rejected)
    with grpc.insecure_channel(address) as channel:
        for method in NEED_KEYS:
            failure(channel.unary_unary(method), b"")
    server.wait_until(lambda: server.metric(rejected) == before + len(NEED_KEYS), 20)


def test_strangers_see_health_alone(locked):
    """Without a key only liveness and readiness are answered."""
    with triton_client(locked[1]) as one:
        assert one.is_server_live()
        assert one.is_server_ready()
        assert one.is_model_ready("m")
        calls = [
            lambda: infer(one, 1),
            one.get_server_metadata,
            lambda: one.get_model_metadata("m"),
            one.get_model_repository_index,
        ]
        for call in calls:
            assert failure(call)[0] == "UNAUTHENTICATED"
        wrong = {"authorization": "Bearer wrong"}
        assert failure(infer, one, 1, headers=wrong)[0] == "UNAUTHENTICATED"


def test_a_client_key_predicts_and_changes_nothing(locked):
    """A client key is enough to predict, and an admin key is needed to unload."""
    with triton_client(locked[1]) as one:
        for key in (CLIENT, ADMIN):
            assert infer(one, 2, headers=key).as_numpy("output")[0, 0] == 2
        code, text = failure(one.unload_model, "m", headers=CLIENT)
        assert (code, "admin key" in text) == ("PERMISSION_DENIED", True)


def test_a_stream_needs_a_key(locked):
    """A stream without a key ends at once."""
    with triton_client(locked[1]) as one:
        errors = []
        one.start_stream(lambda result, error: errors.append(error))
        wait_until(lambda: errors, 20)
        one.stop_stream()
    assert "UNAUTHENTICATED" in str(errors[0])


def test_health_service_follows_readiness(tmp_path):
    """grpc.health.v1 is SERVING when all models are ready, and unknown for others."""
    folder = simulated_models(tmp_path / "models", m=ECHO, broken={"outputs": 0})
    settings = {"model_dir": folder, "ready": False}
    with serving_grpc(environ={"BASKET_READY": "all"}, **settings) as (server, address):
        server.wait_until_loaded()
        with grpc.insecure_channel(address) as channel:
            stub = health_pb2_grpc.HealthStub(channel)

            def state(service=""):
                request = health_pb2.HealthCheckRequest(service=service)
                return stub.Check(request).status

            watched = stub.Watch(health_pb2.HealthCheckRequest())
            not_serving = health_pb2.HealthCheckResponse.NOT_SERVING
            serving_now = health_pb2.HealthCheckResponse.SERVING
            assert next(watched).status == not_serving
            assert state() == state("inference.GRPCInferenceService") == not_serving
            assert failure(state, "nothing")[0] == "NOT_FOUND"
            broken = tmp_path / "models" / "broken" / "1" / "simulated.json"
            broken.write_text(json.dumps(ECHO))
            assert next(watched).status == serving_now
            assert state("tensorflow.serving.PredictionService") == serving_now


def test_reflection_describes_the_services(locked):
    """A client without descriptions finds services, methods and messages."""
    with grpc.insecure_channel(locked[1]) as channel:
        known = ProtoReflectionDescriptorDatabase(channel)
        names = known.get_services()
        assert set(names) >= {
            "tensorflow.serving.PredictionService",
            "tensorflow.serving.ModelService",
            "inference.GRPCInferenceService",
            "grpc.health.v1.Health",
        }
        for name in names[:3]:
            assert known.FindFileContainingSymbol(name).service
        file = known.FindFileContainingSymbol("inference.ModelInferRequest")
        assert "ModelInferRequest" in [each.name for each in file.message_type]


def _write_certificate(folder):
    """Write a key and a certificate that is its own authority."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes"),
            *("-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    return key, certificate


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
@pytest.mark.parametrize("wants_certificate", [False, True])
def test_tls_is_that_of_http(models, tmp_path, wants_certificate):
    """With --certfile and --keyfile gRPC has TLS, too, and asks for a certificate."""
    key, certificate = _write_certificate(tmp_path)
    args = [f"--certfile={certificate}", f"--keyfile={key}"]
    if wants_certificate:
        args += ["--cert-reqs=2", f"--ca-certs={certificate}"]
    with serving_grpc(*args, ready=False, model_dir=models) as (server, address):
        server.wait_until(lambda: "gRPC: listening" in server.log.read_text(), 60)
        name = f"localhost:{address.rpartition(':')[2]}"
        own = {"root_certificates": str(certificate)}
        if wants_certificate:
            with triton_client(name, ssl=True, **own) as one:
                assert failure(infer, one, 1)[0] == "UNAVAILABLE"
            own |= {"private_key": str(key), "certificate_chain": str(certificate)}
        with triton_client(name, ssl=True, **own) as one:
            assert infer(one, 4).as_numpy("output")[0, 0] == 4
        with triton_client(address) as one:
            assert failure(infer, one, 1)[0] == "UNAVAILABLE"


def test_a_port_in_use_ends_the_start(models):
    """A second server on the port of gRPC does not start, and says why."""
    with serving_grpc(model_dir=models) as (_, address):
        settings = {"model_dir": models, "grpc_bind": address}
        with (
            pytest.raises(AssertionError, match=f"BASKET_GRPC_BIND={address}"),
            serving(**settings),
        ):
            pass


def test_other_worker_classes_refuse_grpc(models):
    """Gunicorn's own workers serve no gRPC, so the start ends with a text."""
    with (
        pytest.raises(AssertionError, match="gthread serves no gRPC"),
        serving_grpc("--worker-class=gthread", model_dir=models),
    ):
        pass


def test_silent_connections_keep_nobody_from_http_or_for_long_from_grpc(models):
    """Of more connections than --worker-connections the rest are closed at once."""
    args = "--worker-connections=8", "--threads=2"
    with (
        serving_grpc(*args, model_dir=models) as (server, address),
        contextlib.ExitStack() as silent,
    ):
        host, _, port = address.partition(":")
        opened = [
            silent.enter_context(socket.create_connection((host, int(port))))
            for _ in range(40)
        ]
        wait_until(lambda: sum(map(_is_closed, opened)) == 32, 8)
        assert server.predict([[1.0] * 4]).status == 200
        # Those that do not speak HTTP/2 are closed, too, after 10 s.
        wait_until(lambda: all(map(_is_closed, opened)), 30)
        with triton_client(address) as one:
            assert infer(one, 7).as_numpy("output")[0, 0] == 7


def _is_closed(connection):
    """Return whether the server has closed a connection, after its own preface."""
    connection.setblocking(False)
    try:
        while connection.recv(4096):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        pass
    return True
