"""What a server serves: `gunicorn wsgi:app`, or `wsgi:asgi` under any ASGI server.

The only module whose import has an effect: models begin to load.
"""

import atexit
import logging
import os
import sys

from app import create_app, run_dir
from app.errors import SettingsError
from app.settings import Settings

_AT_COMMAND_LINE = "FLASK_RUN_FROM_CLI" in os.environ
_UNDER_GUNICORN = "gunicorn" in os.environ.get("SERVER_SOFTWARE", "")

if _UNDER_GUNICORN and run_dir.RUN_DIR not in os.environ:
    # Gunicorn looks for it where it was started, whatever --chdir says.
    logging.getLogger("app").warning(
        "Gunicorn has not read Basket's gunicorn.conf.py, so metrics are each worker's "
        "own, and a stop loses requests: start it in %s",
        os.path.dirname(os.path.abspath(__file__)),
    )

try:
    settings = Settings.from_environment()
    lacks_models = not _AT_COMMAND_LINE and not run_dir.model_sockets()
    if settings.model_process == "shared" and lacks_models:
        raise SettingsError(
            "BASKET_MODEL_PROCESS=shared: only Gunicorn, with Basket's "
            "gunicorn.conf.py, starts model processes"
        )
    app = create_app(settings)
except SettingsError as error:
    if _UNDER_GUNICORN:
        raise
    sys.exit(f"{'Error' if _AT_COMMAND_LINE else 'Basket does not start'}: {error}")

asgi = app.asgi
# `flask --app wsgi models ...` wants the commands and no loaded models.
if not _AT_COMMAND_LINE:
    loader = app.extensions["basket"]
    loader.start()
    # Nothing is left to finish here: a server that stops gracefully has waited for
    # its requests already.
    atexit.register(loader.close, timeout_s=5)
