"""`flask --app wsgi models ...`: work with models at the command line."""

from typing import Any

import click
from flask.cli import AppGroup

from app.commands.check import check_command
from app.commands.export import export_command
from app.commands.fetch import fetch_command
from app.commands.make import make_commands
from app.commands.quantize import quantize_command
from app.errors import ModelLoadError, SettingsError
from app.settings import Settings


class _ModelsGroup(AppGroup):
    """Commands whose errors are one line each."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (ModelLoadError, SettingsError) as error:
            raise click.ClickException(str(error)) from error


def models_commands(settings: Settings) -> AppGroup:
    """The `models` group."""
    models = _ModelsGroup(
        "models", help="Make, fetch, check, quantise and export models."
    )
    models.add_command(make_commands(settings))
    models.add_command(export_command(settings))
    models.add_command(check_command(settings))
    models.add_command(fetch_command(settings))
    models.add_command(quantize_command(settings))
    return models
