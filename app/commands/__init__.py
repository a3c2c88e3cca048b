"""`flask --app wsgi models ...`: work with models at the command line."""

from flask.cli import AppGroup

from app.commands.make import make_commands
from app.settings import Settings


def models_commands(settings: Settings) -> AppGroup:
    """The `models` group."""
    models = AppGroup("models", help="Make, check and export models.")
    models.add_command(make_commands(settings))
    return models
