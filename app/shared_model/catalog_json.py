"""The content of a catalog as JSON values, and back."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from app.batching.interfaces import Observer, Runner
from app.batching.model_log import ModelLog
from app.engines.base import Signature
from app.engines.python.service import Service
from app.repository.served import Model, ServedModel
from app.settings import Settings
from app.settings.image_config import ImageClass, ImageConfig
from app.settings.model_config import OWN_SETTINGS, ModelConfig
from app.user_code.user_code import UserCode


def model_to_json(
    model: Model, version_json: Callable[[ServedModel], dict[str, Any]]
) -> dict[str, Any]:
    """Return a model's state; `version_json` returns what `version_to_json` does."""
    return {
        "problem": model.problem,
        "settled": model.settled,
        "unloaded": model.unloaded,
        "labels": dict(model.routes.labels),
        "traffic": dict(model.routes.traffic),
        "capture": model.capture and asdict(model.capture),
        "rollout": model.rollout and list(model.rollout),
        "versions": {
            str(number): {
                "state": version.state.value,
                "error": version.error,
                "served": version.served and version_json(version.served),
            }
            for number, version in model.versions.items()
        },
    }


def version_to_json(served: ServedModel) -> dict[str, Any]:
    """Return what a web worker needs of a version; it has the server's settings."""
    config, code = served.config, served.user_code
    return {
        "platform": served.platform,
        "signatures": {
            name: signature.to_list() for name, signature in served.signatures.items()
        },
        "settings": {name: getattr(config.settings, name) for name in OWN_SETTINGS},
        "labels": dict(config.labels),
        "traffic": dict(config.traffic),
        "image": None if config.image is None else asdict(config.image),
        # One that only imports does so where the model runs.
        "service": str(code.service.folder.absolute())
        if code is not None and code.service.has_parts
        else None,
    }


def version_from_json(
    name: str,
    version: int,
    values: Mapping[str, Any],
    settings: Settings,
    runner: Runner,
    observer: Observer,
) -> ServedModel:
    """Return the version of `version_to_json` with a runner and an observer.

    Raises:
        ModelLoadError: its service.py can't be imported in this process.
    """
    own: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in values["settings"].items()
    }
    config = ModelConfig(
        replace(settings, **own),
        values["labels"],
        values["traffic"],
        _to_image(values["image"]),
    )
    signatures = {
        key: Signature.from_list(value) for key, value in values["signatures"].items()
    }
    code = None
    if values["service"] is not None:
        service, log = Service(Path(values["service"])), ModelLog(name, version)
        code = UserCode(service, signatures, log, is_packed=True)
    parts = values["platform"], signatures, config, runner, observer
    return ServedModel(name, version, *parts, code)


def _to_image(values: Mapping[str, Any] | None) -> ImageConfig | None:
    if values is None:
        return None
    classes = tuple(ImageClass(**each) for each in values["classes"])
    size = tuple(values["size"])
    return ImageConfig(**{**values, "size": size, "classes": classes})
