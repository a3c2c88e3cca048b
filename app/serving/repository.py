"""The folder of models: <name>/basket.toml and <name>/<version>/.

It is read again and again while the server runs. Only folders whose names are
numbers are versions, so one that is written under another name, such as .tmp-2,
and then renamed, is never seen half done.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from app.errors import SettingsError
from app.settings import Settings
from app.settings.model_config import ModelConfig, read_model_config

# As TensorFlow Serving's int64; more digits are no version.
_MOST_DIGITS = 18
# Size and time of each file: what changes when a version is written over.
Fingerprint = frozenset[tuple[str, int, int]]


@dataclass(frozen=True)
class ModelFolder:
    """A model as it stands on disk: its configuration or what is wrong with it."""

    name: str
    versions: Mapping[int, Path]
    config: ModelConfig | SettingsError


def scan(model_dir: Path, settings: Settings) -> dict[str, ModelFolder]:
    """All models by name, those whose own folder can't be read now too.

    Raises:
        OSError: the folder of models itself can't be read now.
    """
    found = [
        _read(folder, settings)
        for folder in sorted(model_dir.iterdir())
        if not folder.name.startswith((".", "_", "lost+found"))
    ]
    return {model.name: model for model in found if model is not None}


def fingerprint(version: Path) -> Fingerprint:
    """What tells whether a version that could not be loaded is worth another try."""
    found = set()
    for file in version.rglob("*"):
        try:
            status = file.stat()
        except OSError:  # on its way in or out
            continue
        name = str(file.relative_to(version))
        found.add((name, status.st_size, status.st_mtime_ns))
    return frozenset(found)


def _read(folder: Path, settings: Settings) -> ModelFolder | None:
    """A model, None: this is no folder, or is gone by now."""
    versions: dict[int, Path] = {}
    config: ModelConfig | SettingsError
    try:
        versions = _versions(folder)
        config = read_model_config(folder, settings)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        config = SettingsError(f"its folder can't be read now: {error.strerror}")
    except SettingsError as error:
        config = error
    except Exception as error:  # must not end the scan of the others
        config = SettingsError(f"can't be read ({type(error).__name__})")
    return ModelFolder(folder.name, versions, config)


def _versions(folder: Path) -> dict[int, Path]:
    return {
        int(version.name): version
        for version in sorted(folder.iterdir())
        if re.fullmatch(rf"[0-9]{{1,{_MOST_DIGITS}}}", version.name)
        and version.is_dir()
    }
