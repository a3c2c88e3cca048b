"""`flask --app wsgi models ...`: manage models on the command line."""

import os
from typing import Any

import click
from flask.cli import AppGroup

from app.commands.captured import captured_command
from app.commands.check import check_command
from app.commands.compare import compare_command
from app.commands.convert import convert_command
from app.commands.export import export_command
from app.commands.new_models.fetch import fetch_command
from app.commands.new_models.make import make_commands
from app.commands.plan.command import plan_command
from app.commands.promote import promote_command, send_back_command
from app.commands.quantize import quantize_command
from app.errors import BasketError, ModelLoadError, SettingsError
from app.settings import Settings


class _ModelsGroup(AppGroup):
    """Commands that show errors of models and settings as one line."""

    def invoke(self, ctx: click.Context) -> Any:
        # Commands run Keras on TensorFlow; `check` sets the backend of BASKET_ENGINE.
        os.environ["KERAS_BACKEND"] = "tensorflow"
        try:
            return super().invoke(ctx)
        except (BasketError, ModelLoadError, SettingsError) as error:
            raise click.ClickException(str(error)) from error


def models_commands(settings: Settings) -> AppGroup:
    """Return the command group `models`."""
    models = _ModelsGroup(
        "models",
        help="Make, fetch, check, compare, promote, quantize, export, convert, plan; "
        "show requests.",
    )
    for command in (
        make_commands,
        export_command,
        check_command,
        captured_command,
        fetch_command,
        quantize_command,
        plan_command,
        compare_command,
        promote_command,
        send_back_command,
        convert_command,
    ):
        models.add_command(command(settings))
    return models
