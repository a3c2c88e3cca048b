"""What the module of the worker class brings into Gunicorn's master."""

import subprocess
import sys

from testing.server import ROOT

SHOW = """
import sys
import app.rims.gunicorn_private, app.rims.worker
print(*(name for name in sys.modules if name.startswith("app.")))
"""


def test_master_imports_no_http_and_no_calls():
    """A worker that starts at a HUP runs new code, and makes ids of its own."""
    found = subprocess.run(
        [sys.executable, "-c", SHOW], cwd=ROOT, capture_output=True, check=True
    )
    imported = set(found.stdout.decode().split())
    assert "app.rims.worker" in imported
    assert not imported & {"app.call", "app.rims.http1", "app.rims.http_server"}
