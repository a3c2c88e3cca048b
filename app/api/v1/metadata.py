"""A model's status and metadata in TensorFlow Serving's JSON."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from flask import Response

from app.api.responses import json_response
from app.engines.base import TensorSpec
from app.errors import NotReady, UnknownModel
from app.repository.catalog import Catalog
from app.repository.routing import Target
from app.repository.served import IS_LOADING, ServedModel, State, VersionStatus

METHOD_NAME = "tensorflow/serving/predict"
# NumPy's names of dtypes whose TensorFlow name is not the same in capitals.
_DTYPES = {
    "float16": "DT_HALF",
    "float32": "DT_FLOAT",
    "float64": "DT_DOUBLE",
    "object": "DT_STRING",
}


def status(catalog: Catalog, name: str, target: Target) -> Response:
    """Return the states of a model's versions, highest first, or of the target's.

    KServe reads `ready`. As in TensorFlow Serving, a model that is not ready is a 200
    with at least one state, and a label is ignored.

    Raises:
        UnknownModel: no such model or version.
        NotReady: no version of the model is loaded or loading.
    """
    try:
        versions = catalog.status(name)
    except UnknownModel:
        text = f"Could not find any versions of model {name[:80]}"
        raise UnknownModel(text) from None
    if target.version is not None:
        versions = [each for each in versions if each.version == target.version]
        if not versions:
            raise UnknownModel(
                f"Could not find version {target.version} of model {name[:80]}"
            )
    if not versions:
        raise NotReady(
            f"model {name!r}: {catalog.unavailable_reason(name) or IS_LOADING}"
        )
    return json_response(
        {
            "name": name,
            "ready": any(each.state is State.AVAILABLE for each in versions),
            "model_version_status": [_version(each) for each in versions],
        }
    )


def metadata(model: ServedModel) -> Response:
    """Return all signatures of a version."""
    signatures = {
        name: {
            "inputs": _tensors(model, name, signature.inputs),
            "outputs": _tensors(model, name, signature.outputs),
            "method_name": METHOD_NAME,
        }
        for name, signature in model.signatures.items()
    }
    return json_response(
        {
            "model_spec": {
                "name": model.name,
                "signature_name": "",
                "version": str(model.version),
            },
            "metadata": {"signature_def": {"signature_def": signatures}},
        }
    )


def _version(version: VersionStatus) -> dict[str, Any]:
    return {
        "version": str(version.version),
        "state": version.state,
        "status": {
            "error_code": "INTERNAL" if version.error else "OK",
            "error_message": version.error,
        },
    }


def _tensors(
    model: ServedModel, signature_name: str, specs: Iterable[TensorSpec]
) -> dict[str, Any]:
    signature = model.signatures[signature_name]
    return {
        spec.name: {
            # Any object of the user's own code is a variant.
            "dtype": _dtype(spec.dtype) if model.has_tensors else "DT_VARIANT",
            "tensor_shape": _tensor_shape(signature.tensor_shape(spec)),
            # As TensorFlow names tensors; those of other frameworks have no names.
            "name": f"{signature_name}_{spec.name}:0",
        }
        for spec in specs
    }


def _tensor_shape(shape: Sequence[int | None] | None) -> dict[str, Any]:
    sizes = [-1 if size is None else size for size in shape or ()]
    return {
        "dim": [{"size": str(size), "name": ""} for size in sizes],
        "unknown_rank": shape is None,
    }


def _dtype(dtype: np.dtype[np.generic]) -> str:
    return _DTYPES.get(dtype.name, f"DT_{dtype.name.upper()}")
