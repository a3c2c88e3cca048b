"""Models and their versions, as the page shows them.

The numbers of versions are strings, as in V1 and V2: JavaScript's are exact only up to
2 ** 53.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from app.engines.base import main_signature
from app.repository.catalog import Catalog
from app.repository.routing import Rollout
from app.repository.served import ServedModel, VersionStatus
from app.web.described import example_body, row_tensors


def described_models(catalog: Catalog) -> list[dict[str, Any]]:
    """Return all models with all of their versions, the newest first."""
    problems, served = catalog.problems(), catalog.models()
    by_name = {
        name: {each.version: each for each in served if each.name == name}
        for name in catalog.names()
    }
    return [
        _model(catalog, name, versions, problems.get(name, []))
        for name, versions in by_name.items()
    ]


def _model(
    catalog: Catalog,
    name: str,
    served: Mapping[int, ServedModel],
    problems: Iterable[str],
) -> dict[str, Any]:
    routes, rollout = catalog.routes(name)
    newest = served[max(served)] if served else None
    return {
        "name": name,
        "problems": problems,
        "traffic": dict(routes.traffic),
        "labels": {label: str(number) for label, number in routes.labels.items()},
        "rollout": rollout and _rollout(rollout),
        "max_queue_rows": newest and newest.max_rows,
        "max_batch_size": newest and newest.config.settings.max_batch_size,
        "versions": [
            {**_status(each), **_version(served.get(each.version))}
            for each in catalog.status(name)
        ],
    }


def _rollout(rollout: Rollout) -> dict[str, Any]:
    candidate = rollout.candidate
    return {
        "serving": str(rollout.serving),
        "candidate": None if candidate is None else str(candidate),
        "percent": rollout.percent,
    }


def _status(status: VersionStatus) -> dict[str, Any]:
    return {
        "version": str(status.version),
        "state": status.state,
        "error": status.error,
    }


def _version(model: ServedModel | None) -> dict[str, Any]:
    """Return what a client needs to ask a version; of one that is not ready nothing."""
    if model is None:
        return {
            **{"platform": "", "inputs": [], "outputs": []},
            **{"batching": "", "image": None, "v2": False},
            **{"user_code": False, "example": None},
        }
    _, signature = main_signature(model.signatures)
    image = model.config.image
    return {
        "platform": model.platform,
        "inputs": row_tensors(model, signature.inputs),
        "outputs": row_tensors(model, signature.outputs),
        "batching": signature.batching_note(),
        "image": image
        and {"size": image.size, "mode": image.mode, "classes": len(image.classes)},
        "v2": model.has_tensors,
        "user_code": model.user_code is not None and model.user_code.service.has_parts,
        "example": example_body(model),
    }
