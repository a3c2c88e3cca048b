"""What a server serves: `gunicorn wsgi:app`, `granian wsgi:app`.

The only module whose import has an effect: models begin to load.
"""

import atexit
import logging
import os
import sys

from app import create_app, granian
from app.errors import SettingsError
from app.granian import start, stop
from app.run_dir import RUN_DIR

_AT_COMMAND_LINE = "FLASK_RUN_FROM_CLI" in os.environ

if "gunicorn" in os.environ.get("SERVER_SOFTWARE", "") and RUN_DIR not in os.environ:
    # Gunicorn looks for it where it was started, whatever --chdir says.
    logging.getLogger("app").warning(
        "Gunicorn has not read Basket's gunicorn.conf.py, so metrics are each worker's "
        "own, and a stop loses requests: start it in %s",
        os.path.dirname(os.path.abspath(__file__)),
    )

try:
    if granian.is_serving():
        stop.hold_signals()
        start.prepare()
    application = create_app()
except SettingsError as error:
    if granian.is_serving():
        sys.exit(f"Basket does not start: {error}")
    if not _AT_COMMAND_LINE:
        raise
    sys.exit(f"Error: {error}")

loader = application.extensions["basket"]
# `flask --app wsgi models ...` wants the commands and no loaded models.
if not _AT_COMMAND_LINE:
    loader.start()
    # Nothing is left to finish here: a server that stops in order has waited for
    # its requests already.
    atexit.register(loader.close, timeout_s=5)

app: object = application
if granian.is_serving():
    from app.granian.rsgi import Rsgi

    options = start.options()
    stop.stop_in_order(loader.close, options["workers_kill_timeout"])
    app = Rsgi(application, options["url_path_prefix"] or "")
