"""What a WSGI server serves: `gunicorn wsgi:app`.

The only module whose import has an effect: models begin to load.
"""

import atexit
import os

from app import create_app

app = create_app()

# `flask --app wsgi models ...` wants the commands and no loaded models.
if "FLASK_RUN_FROM_CLI" not in os.environ:
    app.extensions["basket"].start()
    # Nothing is left to finish here: a server that stops in order has waited for
    # its requests already.
    atexit.register(app.extensions["basket"].close, timeout_s=5)
