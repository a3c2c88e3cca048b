"""The Open Inference Protocol over HTTP: health, metadata and statistics.

Configuration and statistics are Triton's extensions, with the fields that its clients
and perf_analyzer read.
"""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from flask import Blueprint, Response, request

from app import telemetry
from app.api.access.rights import Rights
from app.api.responses import json_response
from app.codec.v2.datatypes import BYTES, datatype_of
from app.engines.base import Signature, TensorSpec, main_signature
from app.errors import NoTensors, NotReady, UnknownModel
from app.repository.catalog import Catalog
from app.repository.health import Health
from app.repository.routing import Target
from app.repository.served import IS_LOADING, ServedModel
from app.totals import Totals

VERSION = "0.1.0"
_EXTENSIONS = (
    "binary_tensor_data",
    "model_configuration",
    "model_repository",
    "parameters",
    "statistics",
)


def health_blueprint(catalog: Catalog, health: Health, rights: Rights) -> Blueprint:
    """Return the routes of liveness and readiness, of the server and of models.

    To a stranger a model that does not exist is one that is not ready.
    """
    blueprint = Blueprint("v2_health", __name__)

    @blueprint.get("/v2/health/live")
    def live() -> Response:
        live = not health.stuck()
        return json_response({"live": live}, 200 if live else 503)

    @blueprint.get("/v2/health/ready")
    def ready() -> Response:
        return _readiness({}, catalog.is_ready())

    @blueprint.get("/v2/models/<model>/ready")
    @blueprint.get("/v2/models/<model>/versions/<version:version>/ready")
    def model_ready(model: str, version: int | None = None) -> Response:
        try:
            _served(catalog, model, version)
        except NotReady:
            return _readiness({"name": model}, ready=False)
        except UnknownModel:
            if rights.is_client(request.environ):
                raise
            return _readiness({"name": model}, ready=False)
        return _readiness({"name": model}, ready=True)

    return blueprint


def metadata_blueprint(catalog: Catalog) -> Blueprint:
    """Return routes of metadata, configuration (both of the newest) and statistics."""
    blueprint = Blueprint("v2_metadata", __name__)

    @blueprint.get("/v2", strict_slashes=False)
    def server() -> Response:
        return json_response(
            {"name": "basket", "version": VERSION, "extensions": _EXTENSIONS}
        )

    @blueprint.get("/v2/models")
    def models() -> Response:
        return json_response({"models": _offered_names(catalog)})

    @blueprint.get("/v2/models/<model>")
    @blueprint.get("/v2/models/<model>/versions/<version:version>")
    def metadata(model: str, version: int | None = None) -> Response:
        return json_response(_metadata(_served(catalog, model, version)))

    @blueprint.get("/v2/models/<model>/config")
    @blueprint.get("/v2/models/<model>/versions/<version:version>/config")
    def config(model: str, version: int | None = None) -> Response:
        return json_response(_config(_served(catalog, model, version)[-1]))

    @blueprint.get("/v2/models/stats")
    @blueprint.get("/v2/models/<model>/stats")
    @blueprint.get("/v2/models/<model>/versions/<version:version>/stats")
    def stats(model: str | None = None, version: int | None = None) -> Response:
        served = _offered(catalog) if not model else _served(catalog, model, version)
        totals = telemetry.totals().versions
        return json_response(
            {
                "model_stats": [
                    _stats(each, totals[each.name, str(each.version)])
                    for each in served
                ]
            }
        )

    return blueprint


def _offered(catalog: Catalog) -> list[ServedModel]:
    return [each for each in catalog.models() if each.has_tensors]


def _offered_names(catalog: Catalog) -> list[str]:
    hidden = {model.name for model in catalog.models()}
    hidden -= {model.name for model in _offered(catalog)}
    return [name for name in catalog.names() if name not in hidden]


def check_tensors(model: ServedModel) -> None:
    """Check that a version has tensors to offer.

    Raises:
        NoTensors: its service.py takes and gives objects.
    """
    if not model.has_tensors:
        raise NoTensors(
            f"model {model.name!r} is code without tensors (service.py), which V2 and "
            "gRPC do not offer: ask /predict or /v1"
        )


def _readiness(about: Mapping[str, str], ready: bool) -> Response:
    status = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
    return json_response({**about, "ready": ready}, status)


def _served(catalog: Catalog, name: str, version: int | None) -> list[ServedModel]:
    """Return the version, or all versions that are ready, the newest last.

    Raises:
        UnknownModel: no such model or version.
        NotReady: the version is not ready, or none is.
    """
    if version is not None:
        with catalog.lease(Target(name, version)) as served:
            check_tensors(served)
            return [served]
    ready = [model for model in catalog.models() if model.name == name]
    for model in ready:
        check_tensors(model)
    if not ready:
        raise NotReady(
            f"model {name!r}: {catalog.unavailable_reason(name) or IS_LOADING}"
        )
    return ready


def _metadata(versions: list[ServedModel]) -> dict[str, Any]:
    newest = versions[-1]
    _, signature = main_signature(newest.signatures)
    metadata: dict[str, Any] = {
        "name": newest.name,
        "versions": [str(model.version) for model in versions],
        "platform": newest.platform,
        "inputs": [_tensor(spec, signature) for spec in signature.inputs],
        "outputs": [_tensor(spec, signature) for spec in signature.outputs],
    }
    if signature.limit_reason:
        metadata["properties"] = {"batching": signature.batching_note()}
    return metadata


def _tensor(spec: TensorSpec, signature: Signature) -> dict[str, Any]:
    return {
        "name": spec.name,
        "datatype": datatype_of(spec.dtype),
        "shape": _dims(signature.tensor_shape(spec)),
    }


def _dims(shape: Sequence[int | None] | None) -> list[int]:
    """Return the sizes, -1 for a free size; an unknown rank as one free size."""
    sizes = (None,) if shape is None else shape
    return [-1 if size is None else size for size in sizes]


def _config(model: ServedModel) -> dict[str, Any]:
    """Return Triton's model configuration, in which dims are those of one row."""
    _, signature = main_signature(model.signatures)
    settings = model.config.settings
    # As in Triton, 0 where dims are those of a whole tensor.
    (*_, max_batch_size) = signature.batch_sizes([settings.max_batch_size])
    if signature.takes_whole_tensors:
        max_batch_size = 0
    config: dict[str, Any] = {
        "name": model.name,
        "platform": model.platform,
        "max_batch_size": max_batch_size,
        "input": [_config_tensor(spec) for spec in signature.inputs],
        "output": [_config_tensor(spec) for spec in signature.outputs],
    }
    if settings.batching and not signature.takes_whole_tensors:
        config["dynamic_batching"] = {
            "max_queue_delay_microseconds": settings.batch_timeout_micros or 0
        }
    return config


def _config_tensor(spec: TensorSpec) -> dict[str, Any]:
    datatype = datatype_of(spec.dtype)
    name = "STRING" if datatype == BYTES else datatype
    dims = _dims(None if spec.any_rank else spec.shape)
    tensor = {"name": spec.name, "data_type": f"TYPE_{name}", "dims": dims}
    # Triton allows no empty dims, and its clients refuse them.
    return tensor if dims else tensor | {"dims": [1], "reshape": {"shape": []}}


def _stats(model: ServedModel, totals: Totals) -> dict[str, Any]:
    """Return Triton's statistics of one version.

    Stages count only requests that succeeded. Decoding is compute_input, encoding is
    compute_output. There is no cache.
    """
    success_seconds = totals.seconds - totals.failed_seconds
    stages = {
        stage: _duration(totals.succeeded, seconds)
        for stage, seconds in totals.stage_seconds.items()
    }
    return {
        "name": model.name,
        "version": str(model.version),
        "inference_count": totals.rows,
        "execution_count": totals.batches,
        "inference_stats": {
            "success": _duration(totals.succeeded, success_seconds),
            "fail": _duration(totals.failed, totals.failed_seconds),
            "queue": stages["queue"],
            "compute_input": stages["decode"],
            "compute_infer": stages["infer"],
            "compute_output": stages["encode"],
            "cache_hit": _duration(0, 0),
            "cache_miss": _duration(0, 0),
        },
    }


def _duration(count: int, seconds: float) -> dict[str, int]:
    # A difference of sums of floats may be just below 0.
    return {"count": count, "ns": max(round(seconds * 1e9), 0)}
