"""What a WSGI server serves: `gunicorn wsgi:app`, `granian --interface wsgi wsgi:app`.

The only module whose import has an effect: models begin to load.
"""

import atexit
import os
import sys

from app import create_app, granian
from app.errors import SettingsError

_AT_COMMAND_LINE = "FLASK_RUN_FROM_CLI" in os.environ

try:
    if granian.is_serving():
        granian.hold_signals()
        granian.prepare()
    app = create_app()
except SettingsError as error:
    if granian.is_serving():
        sys.exit(f"Basket does not start: {error}")
    if not _AT_COMMAND_LINE:
        raise
    sys.exit(f"Error: {error}")

# `flask --app wsgi models ...` wants the commands and no loaded models.
if not _AT_COMMAND_LINE:
    app.extensions["basket"].start()
    # Nothing is left to finish here: a server that stops in order has waited for
    # its requests already.
    atexit.register(app.extensions["basket"].close, timeout_s=5)

if granian.is_serving():
    app.wsgi_app = granian.CompleteEnviron(app.wsgi_app)  # type: ignore[method-assign]
    granian.stop_in_order(app.extensions["basket"].close)
