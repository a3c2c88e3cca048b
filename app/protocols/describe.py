"""What the server says of its models, and changes of them, as plain data.

HTTP writes the values as JSON, and gRPC as messages: V1's are TensorFlow Serving's, all
others the Open Inference Protocol's with Triton's extensions, in the fields that its
clients and perf_analyzer read.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from app import telemetry
from app.codec.v2.datatypes import BYTES, datatype_of
from app.engines.base import Signature, TensorSpec, main_signature
from app.errors import NoTensors, NotReady, UnknownModel, Unsupported
from app.repository.catalog import Catalog
from app.repository.health import Health
from app.repository.routing import Target
from app.repository.served import IS_LOADING, ServedModel, State
from app.totals import Totals

VERSION = "0.1.0"
_EXTENSIONS = (
    "binary_tensor_data",
    "model_configuration",
    "model_repository",
    "parameters",
    "statistics",
)
_READY = "READY"
_STATES = {
    State.LOADING: "LOADING",
    State.AVAILABLE: _READY,
    State.UNLOADING: "UNLOADING",
    State.END: "UNAVAILABLE",
}
# Of each signature in TensorFlow Serving's metadata.
METHOD_NAME = "tensorflow/serving/predict"
# NumPy's names of dtypes whose TensorFlow name is not the same in capitals.
_DTYPES = {
    "float16": "DT_HALF",
    "float32": "DT_FLOAT",
    "float64": "DT_DOUBLE",
    "object": "DT_STRING",
}


class Repository(Protocol):
    """Changes what is served: a Loader, or a RemoteLoader of model processes."""

    def load(self, name: str, timeout_s: float) -> None:
        """Load a model, and wait until it is ready."""
        ...

    def unload(self, name: str, timeout_s: float) -> None:
        """Unload a model, and wait for its jobs."""
        ...

    def set_traffic(
        self, name: str, weights: Mapping[str, Any], timeout_s: float
    ) -> None:
        """Split a model's traffic by label; none: as basket.toml says."""
        ...


class Description:
    """Describes the server, its models and versions; changes what is served.

    Without a version, all that are ready are meant, the newest for what there is one
    of. Methods raise UnknownModel for a name or version that there is not, NotReady for
    one that is not ready, and NoTensors for a model that V2 does not offer.
    """

    def __init__(
        self, catalog: Catalog, health: Health, repository: Repository, timeout_s: float
    ) -> None:
        """Store the parts; a change may take `timeout_s`."""
        self._catalog = catalog
        self._health = health
        self._repository = repository
        self._timeout_s = timeout_s

    def is_live(self) -> bool:
        """Return whether no model is stuck."""
        return not self._health.stuck()

    def is_ready(self) -> bool:
        """Return whether the server is ready for requests."""
        return self._catalog.is_ready()

    def is_model_ready(self, model: str, version: int | None = None) -> bool:
        """Return whether a model or a version is ready."""
        try:
            self._served(model, version)
        except NotReady:
            return False
        return True

    def server(self) -> dict[str, Any]:
        """Return the server's name, version and extensions."""
        return {"name": "basket", "version": VERSION, "extensions": _EXTENSIONS}

    def all_names(self) -> list[str]:
        """Return the names of all models."""
        return self._catalog.names()

    def model_names(self) -> list[str]:
        """Return the names of all models but those without tensors."""
        served = self._catalog.models()
        hidden = {model.name for model in served}
        hidden -= {model.name for model in served if model.has_tensors}
        return [name for name in self._catalog.names() if name not in hidden]

    def metadata(self, model: str, version: int | None = None) -> dict[str, Any]:
        """Return a model's versions, platform and tensors."""
        served = self._served(model, version)
        newest = served[-1]
        _, signature = main_signature(newest.signatures)
        metadata: dict[str, Any] = {
            "name": newest.name,
            "versions": [str(each.version) for each in served],
            "platform": newest.platform,
            "inputs": [_tensor(spec, signature) for spec in signature.inputs],
            "outputs": [_tensor(spec, signature) for spec in signature.outputs],
        }
        if signature.limit_reason:
            metadata["properties"] = {"batching": signature.batching_note()}
        return metadata

    def config(self, model: str, version: int | None = None) -> dict[str, Any]:
        """Return Triton's model configuration, in which dims are those of one row."""
        newest = self._served(model, version)[-1]
        _, signature = main_signature(newest.signatures)
        settings = newest.config.settings
        # As in Triton, 0 where dims are those of a whole tensor.
        (*_, max_batch_size) = signature.batch_sizes([settings.max_batch_size])
        if signature.takes_whole_tensors:
            max_batch_size = 0
        config: dict[str, Any] = {
            "name": newest.name,
            "platform": newest.platform,
            "max_batch_size": max_batch_size,
            "input": [_config_tensor(spec) for spec in signature.inputs],
            "output": [_config_tensor(spec) for spec in signature.outputs],
        }
        if settings.batching and not signature.takes_whole_tensors:
            config["dynamic_batching"] = {
                "max_queue_delay_microseconds": settings.batch_timeout_micros or 0
            }
        return config

    def statistics(
        self, model: str | None = None, version: int | None = None
    ) -> dict[str, Any]:
        """Return the statistics of a version, of a model's, or of all."""
        if model:
            served = self._served(model, version)
        else:
            served = [each for each in self._catalog.models() if each.has_tensors]
        totals = telemetry.totals().versions
        stats = [_stats(each, totals[each.name, str(each.version)]) for each in served]
        return {"model_stats": stats}

    def index(self, *, only_ready: bool = False) -> list[dict[str, str]]:
        """Return an entry for each version, or one for a model without any."""
        hidden = [
            (model.name, str(model.version))
            for model in self._catalog.models()
            if not model.has_tensors
        ]
        return [
            entry
            for name in self._catalog.names()
            for entry in self._entries(name)
            if (name, entry.get("version")) not in hidden
            and (not only_ready or entry["state"] == _READY)
        ]

    def load(self, name: str, parameters: Iterable[str] = ()) -> None:
        """Load a model, and wait until it is ready.

        Raises:
            Unsupported: the parameters bring a configuration or files.
            BasketError: as of Repository.load.
        """
        for each in parameters:
            if each == "config" or each.startswith("file:"):
                raise Unsupported(
                    f"parameters.{each[:80]}: a model is loaded as its folder has it"
                )
        self._repository.load(name, self._timeout_s)

    def unload(self, name: str) -> None:
        """Unload a model, and wait for its jobs."""
        self._repository.unload(name, self._timeout_s)

    def set_traffic(self, name: str, weights: Mapping[str, Any]) -> None:
        """Split a model's traffic by label; without weights as basket.toml says."""
        self._repository.set_traffic(name, weights, self._timeout_s)

    def status(self, name: str, version: int | None = None) -> dict[str, Any]:
        """Return V1's states of a model's versions, highest first, or of one.

        KServe reads `ready`. As in TensorFlow Serving, a model that is not ready has at
        least one state.
        """
        try:
            versions = self._catalog.status(name)
        except UnknownModel:
            text = f"Could not find any versions of model {name[:80]}"
            raise UnknownModel(text) from None
        if version is not None:
            versions = [each for each in versions if each.version == version]
            if not versions:
                raise UnknownModel(
                    f"Could not find version {version} of model {name[:80]}"
                )
        if not versions:
            raise self._not_ready(name)
        return {
            "name": name,
            "ready": any(each.state is State.AVAILABLE for each in versions),
            "model_version_status": [
                {
                    "version": str(each.version),
                    "state": each.state,
                    "status": {
                        "error_code": "INTERNAL" if each.error else "OK",
                        "error_message": each.error,
                    },
                }
                for each in versions
            ],
        }

    def signatures(self, target: Target) -> dict[str, Any]:
        """Return V1's metadata of a version: all of its signatures."""
        try:
            with self._catalog.lease(target) as leased:
                model = leased
        except UnknownModel as error:
            raise explained(target, error) from None
        signatures = {
            name: {
                "inputs": _v1_tensors(model, name, signature.inputs),
                "outputs": _v1_tensors(model, name, signature.outputs),
                "method_name": METHOD_NAME,
            }
            for name, signature in model.signatures.items()
        }
        return {
            "model_spec": {
                "name": model.name,
                "signature_name": "",
                "version": str(model.version),
            },
            "metadata": {"signature_def": {"signature_def": signatures}},
        }

    def _served(self, name: str, version: int | None) -> list[ServedModel]:
        """Return the version, or all versions that are ready, the newest last."""
        if version is not None:
            with self._catalog.lease(Target(name, version)) as served:
                ready = [served]
        else:
            ready = [each for each in self._catalog.models() if each.name == name]
        for model in ready:
            if not model.has_tensors:
                raise no_tensors(model)
        if not ready:
            raise self._not_ready(name)
        return ready

    def _not_ready(self, name: str) -> NotReady:
        reason = self._catalog.unavailable_reason(name) or IS_LOADING
        return NotReady(f"model {name!r}: {reason}")

    def _entries(self, name: str) -> list[dict[str, str]]:
        versions = [
            {
                "name": name,
                "version": str(status.version),
                "state": _STATES[status.state],
                "reason": status.error,
            }
            for status in self._catalog.status(name)
        ]
        if versions:
            return versions
        reason = self._catalog.unavailable_reason(name)
        state = "LOADING" if reason == IS_LOADING else "UNAVAILABLE"
        return [{"name": name, "state": state, "reason": reason}]


def explained(target: Target, error: BaseException) -> BaseException:
    """Return an error, an UnknownModel with TensorFlow Serving's text."""
    if not isinstance(error, UnknownModel) or isinstance(error, NoTensors):
        return error
    name = (target.name or "")[:80]
    asked = f"Latest({name})"
    if target.version is not None:
        asked = f"Specific({name}, {target.version})"
    elif target.label is not None:
        asked = f"Label({name}, {target.label[:80]})"
    return UnknownModel(f"Servable not found for request: {asked}")


def no_repository(name: str) -> Unsupported:
    """Return the error for a request that names a repository."""
    return Unsupported(
        f"there is one repository, without a name; {name[:80]!r} was given"
    )


def no_tensors(model: ServedModel) -> NoTensors:
    """Return the error for a model whose service.py takes and gives objects."""
    return NoTensors(
        f"model {model.name!r} is code without tensors (service.py), which V2 and gRPC "
        "do not offer: ask /predict or /v1"
    )


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


def _v1_tensors(
    model: ServedModel, signature_name: str, specs: Iterable[TensorSpec]
) -> dict[str, Any]:
    tensors = {}
    for spec in specs:
        shape = model.signatures[signature_name].tensor_shape(spec)
        dtype = _DTYPES.get(spec.dtype.name, f"DT_{spec.dtype.name.upper()}")
        tensors[spec.name] = {
            # Any object of the user's own code is a variant.
            "dtype": dtype if model.has_tensors else "DT_VARIANT",
            "tensor_shape": {
                "dim": [
                    {"size": "-1" if size is None else str(size), "name": ""}
                    for size in shape or ()
                ],
                "unknown_rank": shape is None,
            },
            # As TensorFlow names tensors; those of other frameworks have no names.
            "name": f"{signature_name}_{spec.name}:0",
        }
    return tensors
