"""What is done before a worker of Granian builds the application."""

import logging
import os
import sys
from typing import Any

from app import advice, gpus
from app.errors import SettingsError
from app.settings import Settings, unknown_variables

_LEAST_KILL_S = 3


def prepare() -> None:
    """Check the settings and the command line, then choose the GPU.

    Before the application is built, which reads what is set here.

    Raises:
        SettingsError: what can't be, or can't be with Granian.
    """
    log = logging.getLogger("app")
    granians = logging.getLogger("_granian")
    log.handlers = granians.handlers
    log.setLevel(granians.level)
    chosen = options()
    settings = Settings.from_environment()
    _refuse(chosen, settings)
    used = gpus.choose(settings.gpus, gpus.visible())
    connections = chosen["backpressure"] or chosen["backlog"]
    at_a_time = advice.AtATime(connections, "connections", "--backpressure")
    for line in advice.lines(settings, used, at_a_time):
        log.info(line)
    for line in unknown_variables():
        log.warning(line)
    if used:
        gpus.pin(used[0])
        log.info("the worker uses GPU %s", used[0])
    # One process counts for itself; the files are for several.
    os.environ.pop("PROMETHEUS_MULTIPROC_DIR", None)


def options() -> dict[str, Any]:
    """What the command line and GRANIAN_ variables say, read as Granian reads them.

    Raises:
        SettingsError: another program was started.
    """
    import click  # noqa: PLC0415
    from granian.cli import cli  # noqa: PLC0415

    try:
        context = cli.make_context(
            "granian", sys.argv[1:], auto_envvar_prefix="GRANIAN"
        )
    except (click.ClickException, click.exceptions.Exit):
        raise SettingsError("Granian is to be started by its own command") from None
    return context.params


def _refuse(chosen: dict[str, Any], settings: Settings) -> None:
    if chosen["interface"] != "rsgi":
        raise SettingsError(
            f"--interface {chosen['interface'].value}: Granian serves this with "
            "--interface rsgi alone"
        )
    if chosen["workers"] > 1:
        raise SettingsError(
            f"--workers {chosen['workers']}: with Granian it is 1; Gunicorn takes more"
        )
    kill_after_s = chosen["workers_kill_timeout"]
    if kill_after_s is not None and kill_after_s < _LEAST_KILL_S:
        raise SettingsError(
            f"--workers-kill-timeout {kill_after_s}: an orderly stop takes "
            f"{_LEAST_KILL_S} s or more"
        )
    if settings.model_process == "shared":
        raise SettingsError(
            "BASKET_MODEL_PROCESS=shared: model processes want Gunicorn"
        )
