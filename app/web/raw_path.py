"""The path of a request over WSGI as the client sent it."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote


def raw_path_of(environ: Mapping[str, Any]) -> str:
    """Return the path as the client sent it, percent-encoded, without a mount point."""
    sent = environ.get("RAW_URI") or environ.get("REQUEST_URI") or ""
    mounted_at = environ.get("SCRIPT_NAME", "")
    if not sent:
        path = mounted_at + environ["PATH_INFO"]
        sent = quote(path.encode("latin-1"), safe="/:")
    # An absolute-form request has the host.
    path = re.sub("^https?://[^/]*", "", sent, flags=re.IGNORECASE).partition("?")[0]
    return path.removeprefix(mounted_at)
