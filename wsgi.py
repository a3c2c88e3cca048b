"""The applications to serve: `gunicorn wsgi:app`, or `wsgi:asgi` by any ASGI server.

This is the only module whose import has an effect: models begin to load.
"""

import atexit
import logging
import os
import sys

from app import create_app, memory
from app.errors import SettingsError
from app.run_dir import RUN_DIR
from app.settings import Settings, model_source

_AT_COMMAND_LINE = "FLASK_RUN_FROM_CLI" in os.environ
_UNDER_GUNICORN = "gunicorn" in os.environ.get("SERVER_SOFTWARE", "")

if _UNDER_GUNICORN and RUN_DIR not in os.environ:
    # Gunicorn looks for it in the folder of the start, whatever --chdir says.
    logging.getLogger("app").warning(
        "Gunicorn has not read Basket's gunicorn.conf.py, so metrics are each worker's "
        "own, and a stop loses requests: start it in %s",
        os.path.dirname(os.path.abspath(__file__)),
    )

try:
    settings = Settings.from_environment()
    if RUN_DIR not in os.environ:
        # Gunicorn's master has done so; a worker starts also while the file is away.
        model_source.check(settings)
    server = create_app(settings)
    # `flask --app wsgi models ...` needs no loaded models.
    if not _AT_COMMAND_LINE:
        memory.freeze()
        server.loader.start()
        server.sampler.start()
        # A server has finished its requests by then.
        atexit.register(server.loader.close, timeout_s=5)
        # Before that.
        atexit.register(server.recording.close, timeout_s=1)
except SettingsError as error:
    if _UNDER_GUNICORN:
        raise
    sys.exit(f"{'Error' if _AT_COMMAND_LINE else 'Basket does not start'}: {error}")

app = server.flask
asgi = server.asgi
