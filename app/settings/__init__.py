"""The server's settings, read once from BASKET_* environment variables."""

import difflib
import os
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any

from app.errors import SettingsError
from app.settings import checks

_PREFIX = "BASKET_"
_FILE_VARIABLE = "BASKET_BATCHING_PARAMETERS_FILE"
# Settings without an environment variable, lists and tables -> where they stand.
_ONLY_IN_FILES = {
    "allowed_batch_sizes": f"basket.toml or in {_FILE_VARIABLE}",
    "constants": "basket.toml",
}


@dataclass(frozen=True)
class Settings:
    """One field for each setting; docs/settings.md describes them."""

    model_dir: Path = Path("models")
    # One file or folder that is served instead of model_dir, and its model's name.
    model: Path | None = None
    model_name: str | None = None
    default_model: str | None = None
    engine: str = "tensorflow"
    # What Keras runs on in the server's processes, whatever a model's own engine: by
    # default that of `engine`, which `replace` does not change any more.
    keras_backend: str = field(default="", repr=False)
    batching: bool = True
    max_batch_size: int = 64
    # None: adaptive.
    batch_timeout_micros: int | None = None
    max_enqueued_batches: int = 16
    # Increasing; empty: a batch may have any size.
    allowed_batch_sizes: tuple[int, ...] = ()
    # A model's [constants] as JSON, in which false and 0 differ; "" without any.
    constants: str = ""
    batching_parameters_file: Path | None = None
    gpu_memory_fraction: float | None = None
    # None: all of them.
    gpus: tuple[int, ...] | None = None
    model_process: str = "worker"
    # Whether service.py beside a model is run.
    user_code: bool = False
    # served: ready while all that was once ready serves; all: while every model does.
    ready: str = "served"
    request_timeout_ms: int = 30_000
    max_body_bytes: int = 64 * 1024 * 1024
    # Empty: no key is required. Not in repr, as keys are secret.
    api_keys: tuple[str, ...] = field(default=(), repr=False)
    api_keys_file: Path | None = None
    # Empty: nothing can be changed over HTTP.
    admin_keys: tuple[str, ...] = field(default=(), repr=False)
    admin_keys_file: Path | None = None
    # host:port; None: gRPC is not served.
    grpc_bind: str | None = None
    # In lower case, without ports.
    allowed_hosts: tuple[str, ...] = ()
    # Of pages that may ask, as browsers write them; "*": all.
    allowed_origins: tuple[str, ...] = ()
    # Where models write captured requests.
    capture_dir: Path | None = None
    # A path, or "-" for stdout; None disables the request log.
    request_log: str | None = None
    request_log_share: float = 1.0

    def __post_init__(self) -> None:
        """Set Keras's backend; check TensorFlow Serving's rule on allowed_batch_sizes.

        Raises:
            SettingsError: the last of them is not max_batch_size.
        """
        if not self.keras_backend:
            backend = "jax" if self.engine == "jax" else "tensorflow"
            object.__setattr__(self, "keras_backend", backend)
        sizes = self.allowed_batch_sizes
        if sizes and sizes[-1] != self.max_batch_size:
            raise SettingsError(
                f"the last of allowed_batch_sizes is {sizes[-1]} and max_batch_size is "
                f"{self.max_batch_size}: they must be equal"
            )

    @property
    def max_rows(self) -> int:
        """The number of rows that a queue holds, and so the most in one request."""
        return self.max_batch_size * self.max_enqueued_batches

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> "Settings":
        """Read all settings; an empty value counts as not set.

        A variable overrides the batching file that another variable names.

        Raises:
            SettingsError: a configuration error; the text names the variable.
        """
        given: dict[str, Any] = {}
        for name, setting in variables().items():
            text = environ.get(name, "").strip()
            if not text:
                continue
            try:
                given[setting.name] = _PARSERS[setting.name](text)
            except ValueError as error:
                shown = f"={text!r}" if setting.repr else ""
                raise SettingsError(f"{name}{shown}: {error}") from error
        for keys in ("api_keys", "admin_keys"):
            if keys in given and f"{keys}_file" in given:
                name = _PREFIX + keys.upper()
                raise SettingsError(f"{name} and {name}_FILE are both set: keep one")
        if "model" in given and "model_dir" in given:
            raise SettingsError(
                "BASKET_MODEL and BASKET_MODEL_DIR are both set: keep one"
            )
        file = given.get("batching_parameters_file")
        try:
            limits = _limits_in(file) if file else {}
            settings = cls(**{**limits, **given})
        except SettingsError as error:
            raise SettingsError(f"{_FILE_VARIABLE}={str(file)!r}: {error}") from error
        if settings.model is None and not settings.model_dir.is_dir():
            raise SettingsError(
                "BASKET_MODEL and BASKET_MODEL_DIR are not set, and there is no folder "
                f"{settings.model_dir} here"
            )
        return settings


def variables() -> dict[str, Field[Any]]:
    """Return the fields of Settings by their environment variables."""
    return {
        _PREFIX + setting.name.upper(): setting
        for setting in fields(Settings)
        if setting.name in _PARSERS
    }


def unknown_variables(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return a line for each BASKET_ variable that is no setting, with the nearest one.

    Warn only: Kubernetes itself sets BASKET_PORT and the like in each pod of a
    namespace that has a service called basket.
    """
    known = [name.removeprefix(_PREFIX) for name in variables()]
    lines = []
    for name in sorted(environ):
        rest = name.removeprefix(_PREFIX)
        if rest not in (name, *known):
            # Without the prefix, which would make all names similar.
            near = difflib.get_close_matches(rest, known, n=1)
            hint = f"; did you mean {_PREFIX}{near[0]}?" if near else ""
            if rest.lower() in _ONLY_IN_FILES:
                hint = f": it stands in {_ONLY_IN_FILES[rest.lower()]}"
            lines.append(f"{name} is not a setting of Basket{hint}")
    return lines


def file_settings(values: Mapping[str, object]) -> dict[str, Any]:
    """Return fields of Settings for those in a file.

    Without max_batch_size, it is the last of allowed_batch_sizes.

    Raises:
        SettingsError: a configuration error; the text names the setting.
    """
    found: dict[str, Any] = {}
    for name, value in values.items():
        try:
            found[name] = _IN_FILES[name](value)
        except ValueError as error:
            raise SettingsError(f"{name} = {checks.shown(value)}: {error}") from error
    if found.get("allowed_batch_sizes"):
        found.setdefault("max_batch_size", found["allowed_batch_sizes"][-1])
    return found


def _limits_in(file: Path) -> dict[str, Any]:
    # Imported only when needed: protobuf takes 7 MiB.
    from app.settings import batching_parameters  # noqa: PLC0415

    return file_settings(batching_parameters.read(file).limits)


_BATCH_SIZE = checks.whole(1, 1_000_000)
# Checks of values in a file, which have types.
_IN_FILES: dict[str, Callable[[object], object]] = {
    "max_batch_size": _BATCH_SIZE,
    "batch_timeout_micros": checks.auto_or(checks.whole(0, 3_600_000_000)),
    "max_enqueued_batches": checks.whole(1, 1_000_000),
    "allowed_batch_sizes": checks.increasing(_BATCH_SIZE),
    "engine": checks.engine,
    "constants": checks.constants,
}
# Parsers of environment variables.
_PARSERS: dict[str, Callable[[str], object]] = {
    "model_dir": checks.folder,
    "model": Path,
    "model_name": checks.model_name,
    "default_model": checks.model_name,
    "engine": checks.engine,
    "batching": checks.switch,
    "max_batch_size": checks.as_text(_IN_FILES["max_batch_size"]),
    "batch_timeout_micros": checks.as_text(_IN_FILES["batch_timeout_micros"]),
    "max_enqueued_batches": checks.as_text(_IN_FILES["max_enqueued_batches"]),
    "batching_parameters_file": Path,
    "gpu_memory_fraction": checks.fraction,
    "gpus": checks.gpu_list,
    "model_process": checks.one_of("worker", "shared"),
    "user_code": checks.switch,
    "ready": checks.one_of("served", "all"),
    "request_timeout_ms": checks.as_text(checks.whole(1, 86_400_000)),
    "max_body_bytes": checks.as_text(checks.whole(1, 1 << 40)),
    "api_keys": checks.keys,
    "api_keys_file": Path,
    "admin_keys": checks.keys,
    "admin_keys_file": Path,
    "grpc_bind": checks.address,
    "allowed_hosts": checks.host_names,
    "allowed_origins": checks.origins,
    "capture_dir": checks.new_folder,
    "request_log": checks.log_file,
    "request_log_share": checks.fraction,
}
