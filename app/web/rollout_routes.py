"""Decisions of operators on rollouts, beside V2's own routes of the repository.

They require an admin key, which flask_app.py checks.
"""

import re
from collections.abc import Mapping
from typing import Any

from flask import Flask

from app.codec.v2.infer_options import flag, shown
from app.errors import BadInput
from app.repository.rollouts import by_hand
from app.settings import Settings
from app.web.body import read_object

# Of the reason for which a version is sent back: it is a line of the log.
_MAX_REASON = 200
_NUMBER = re.compile("[0-9]{1,19}").fullmatch


def add_rollout_routes(app: Flask, settings: Settings) -> None:
    """Add the routes that promote a version, or send it back."""

    @app.post("/v2/repository/models/<model>/promote")
    def promote(model: str) -> Any:
        options = read_object(settings.max_body_bytes)
        version = _version_of(options, "force")
        if flag(options, "force", "the body", default=False):
            newer = [str(each) for each in by_hand.force(settings, model, version)]
            return {"name": model, "promoted": str(version), "refused": newer}
        reason = by_hand.retry(settings, model, version)
        return {"name": model, "retried": str(version), "was_refused": reason}

    @app.post("/v2/repository/models/<model>/send_back")
    def send_back(model: str) -> Any:
        options = read_object(settings.max_body_bytes)
        version = _version_of(options, "reason")
        reason = options.get("reason", "")
        if not isinstance(reason, str) or len(reason) > _MAX_REASON:
            raise BadInput(
                f"the body.reason: expected a text of at most {_MAX_REASON} "
                f"characters, given {shown(reason)}"
            )
        by_hand.send_back(settings, model, version, reason)
        return {"name": model, "sent_back": str(version)}


def _version_of(options: Mapping[str, Any], option: str) -> int:
    """Return the version that a body names, which may have one option beside it.

    Raises:
        BadInput: it names none, or something else.
    """
    version = options.get("version")
    if not isinstance(version, int | str) or not _NUMBER(str(version)[:20]):
        raise BadInput(
            "the body.version: expected the number of a version, as in "
            f'{{"version": 2}}, given {shown(version)}'
        )
    for key in options:
        if key not in ("version", option):
            raise BadInput(f"the body: expected version and {option}, not {key[:40]!r}")
    return int(version)
