"""Settings in effect, and where each has its value from."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import Field, fields
from pathlib import Path
from typing import Any

from app.repository.served import ServedModel
from app.settings import Settings, variables
from app.settings.model_config import FILE_NAME

# What None means.
_NONE = {"batch_timeout_micros": "auto", "gpus": "all"}


def settings_rows(
    settings: Settings,
    models: Iterable[ServedModel],
    environ: Mapping[str, str] = os.environ,
) -> list[dict[str, str | None]]:
    """Return the server's settings, then what the newest version of a model changes.

    Secrets are shown as "set". Of each model, the newest version is the last.
    """
    rows: list[dict[str, str | None]] = [
        {
            "name": name,
            "value": _text(setting, getattr(settings, setting.name)),
            "from": _origin(name, setting, settings, environ),
            "model": None,
        }
        for name, setting in variables().items()
    ]
    for model in {model.name: model for model in models}.values():
        rows += _own_rows(settings, model)
    return rows


def _own_rows(settings: Settings, model: ServedModel) -> list[dict[str, str | None]]:
    own = model.config.settings
    folder = Path() if settings.model else settings.model_dir / model.name
    return [
        {
            "name": setting.name,
            "value": _text(setting, getattr(own, setting.name)),
            "from": str(folder / FILE_NAME),
            "model": model.name,
        }
        for setting in fields(Settings)
        if getattr(own, setting.name) != getattr(settings, setting.name)
    ]


def _origin(
    name: str, setting: Field[Any], settings: Settings, environ: Mapping[str, str]
) -> str:
    if environ.get(name, "").strip():
        return "environment"
    if getattr(settings, setting.name) == setting.default:
        return "default"
    return "batching parameters file" if settings.batching_parameters_file else "code"


def _text(setting: Field[Any], value: Any) -> str:
    if not setting.repr:
        return "set" if value else ""
    if value is None:
        return _NONE.get(setting.name, "")
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return ",".join(str(each) for each in value)
    return str(value)
