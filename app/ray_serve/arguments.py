"""The arguments of the application builder, as they stand in a config file.

They become the variables from which Settings are read. Variables of the environment do
not count: they would be those of whichever machine a replica runs on.
"""

import difflib
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from app.errors import SettingsError
from app.settings import Settings, checks, key_file, model_source, variables

# Argument -> the setting that it is.
_VARIABLES = {
    "model_dir": "BASKET_MODEL_DIR",
    "model": "BASKET_MODEL",
    "default_model": "BASKET_DEFAULT_MODEL",
}
_SETTINGS = "settings"
_REFUSED = {
    "BASKET_ADMIN_KEYS": "a change over HTTP would reach one replica of many; "
    "user_config moves traffic, and a new deploy changes models",
    "BASKET_GPUS": "Ray chooses the GPUs of a replica; ask for them with "
    "ray_actor_options, such as {num_gpus: 1}",
    "BASKET_GRPC_BIND": "clients reach a replica through Ray's proxy, over HTTP, and "
    "the replicas of a node would all listen on the same port",
    "BASKET_MODEL_PROCESS": "a replica is one process, which holds the model",
}
_REFUSED["BASKET_ADMIN_KEYS_FILE"] = _REFUSED["BASKET_ADMIN_KEYS"]
# What those may be all the same.
_IN_A_REPLICA = {"BASKET_MODEL_PROCESS": "worker", "BASKET_GPUS": "all"}
# Relative paths start here, whatever folder Ray was started in.
_ROOT = Path(__file__).parents[2]


def variables_of(args: Mapping[str, Any]) -> dict[str, str]:
    """Return the BASKET_ variables that the arguments stand for, with absolute paths.

    Raises:
        SettingsError: an argument or setting is unknown, given twice, of a wrong type,
            or has no meaning in a replica.
    """
    _check_known("argument", args, (*_VARIABLES, _SETTINGS))
    settings = args.get(_SETTINGS, {})
    if not isinstance(settings, Mapping):
        raise SettingsError(
            f"settings = {checks.shown(settings)}: expected a mapping of BASKET_ names "
            "to values"
        )
    _check_known("setting", settings, variables())
    found = {name: _text(name, value) for name, value in settings.items()}
    for argument, variable in _VARIABLES.items():
        if argument in args:
            if variable in found:
                raise SettingsError(
                    f"{argument} and {variable} in settings are both given: keep one"
                )
            found[variable] = _text(argument, args[argument])
    if not {"BASKET_MODEL", "BASKET_MODEL_DIR"} & found.keys():
        found["BASKET_MODEL_DIR"] = str(Settings.model_dir)
    for variable, reason in _REFUSED.items():
        if found.get(variable) not in (None, _IN_A_REPLICA.get(variable)):
            raise SettingsError(f"{variable} under Ray Serve: {reason}")
    for variable, field in variables().items():
        if field.type in (Path, Path | None) and variable in found:
            found[variable] = os.path.join(_ROOT, found[variable])
    return found


def settings_of(variables: Mapping[str, str]) -> Settings:
    """Return the settings, whose files have been checked on this machine.

    Raises:
        SettingsError: a configuration error; the text names the setting.
    """
    settings = Settings.from_environment(variables)
    key_file.check(settings)
    model_source.check(settings)
    return settings


def _check_known(kind: str, given: Mapping[str, Any], known: Collection[str]) -> None:
    shown = ", ".join(known)
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {shown}"
            raise SettingsError(f"{name!r} is no {kind} of Basket under Ray; {hint}")


def _text(name: str, value: object) -> str:
    """Return a value of YAML as the variable's text: on and off are booleans there."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, str | int | float):
        return str(value)
    raise SettingsError(
        f"{name} = {checks.shown(value)}: expected text, a number, on or off"
    )
