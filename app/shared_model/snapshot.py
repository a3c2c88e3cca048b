"""What a catalog holds as JSON values, so that a web worker's can be equal to it."""

from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any

from app.batching.interfaces import Observer, Runner
from app.engines.base import Signature, TensorSpec
from app.repository.served import Model, ServedModel
from app.settings import Settings
from app.settings.image_config import ImageClass, ImageConfig
from app.settings.model_config import ModelConfig


def of_model(
    model: Model, described: Mapping[int, Mapping[str, Any]]
) -> dict[str, Any]:
    """One model; `described` has what `of_served` says of each of its versions."""
    return {
        "problem": model.problem,
        "settled": model.settled,
        "unloaded": model.unloaded,
        "labels": dict(model.routes.labels),
        "traffic": dict(model.routes.traffic),
        "versions": {
            str(number): {
                "state": version.state.value,
                "error": version.error,
                "served": described.get(number) if version.served else None,
            }
            for number, version in model.versions.items()
        },
    }


def of_served(served: ServedModel, settings: Settings) -> dict[str, Any]:
    """What a web worker has to know of a version; `settings` are the server's."""
    config = served.config
    return {
        "platform": served.platform,
        "signatures": {
            name: {
                "inputs": [spec.to_list() for spec in signature.inputs],
                "outputs": [spec.to_list() for spec in signature.outputs],
            }
            for name, signature in served.signatures.items()
        },
        "settings": {
            knob.name: getattr(config.settings, knob.name)
            for knob in fields(Settings)
            if getattr(config.settings, knob.name) != getattr(settings, knob.name)
        },
        "labels": dict(config.labels),
        "traffic": dict(config.traffic),
        "image": None if config.image is None else asdict(config.image),
    }


def to_served(
    name: str,
    version: int,
    described: Mapping[str, Any],
    settings: Settings,
    runner: Runner,
    observer: Observer,
) -> ServedModel:
    """The version that `of_served` described, with a runner and an observer."""
    own: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in described["settings"].items()
    }
    config = ModelConfig(
        replace(settings, **own),
        described["labels"],
        described["traffic"],
        _to_image(described["image"]),
    )
    signatures = {
        key: Signature(_to_specs(value["inputs"]), _to_specs(value["outputs"]))
        for key, value in described["signatures"].items()
    }
    platform = described["platform"]
    return ServedModel(name, version, platform, signatures, config, runner, observer)


def _to_specs(described: list[Any]) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec.from_list(each) for each in described)


def _to_image(described: Mapping[str, Any] | None) -> ImageConfig | None:
    if described is None:
        return None
    classes = tuple(ImageClass(**each) for each in described["classes"])
    size = tuple(described["size"])
    return ImageConfig(**{**described, "size": size, "classes": classes})
