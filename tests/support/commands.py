"""Runs `flask --app wsgi models ...` in the test's own process."""

from pathlib import Path
from typing import Any

from click.testing import CliRunner

from app.commands import models_commands
from app.settings import Settings


def run_models(model_dir: Path, *args: object, **settings: Any) -> tuple[int, str]:
    """Return the exit status and the output; fail on any exception but an exit."""
    group = models_commands(Settings(model_dir=model_dir, **settings))
    result = CliRunner().invoke(group, [str(each) for each in args])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.output
