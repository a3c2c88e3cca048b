"""The state of a server, which the page shows and asks for once a second."""

import time
from dataclasses import asdict
from itertools import takewhile
from typing import Any

from flask import Blueprint, request

from app.access.rights import Rights
from app.errors import BadInput
from app.repository.catalog import Catalog
from app.settings import Settings
from app.web.head import head
from app.web.page.models import described_models
from app.web.page.observed import Observed
from app.web.page.processes import processes
from app.web.page.ring import LineRing
from app.web.page.settings_rows import settings_rows


def state_blueprint(
    catalog: Catalog, settings: Settings, rights: Rights, observed: Observed
) -> Blueprint:
    """Return /page/state."""
    blueprint = Blueprint("page_state", __name__)

    @blueprint.get("/page/state")
    def state() -> Any:
        sees_all = rights.sees_all(head().headers)
        shown = {
            "now": time.time(),
            "rights": "admin" if rights.is_admin(head().headers) else "client",
            "sees_all": sees_all,
            "default_model": catalog.default_name(),
            "models": described_models(catalog),
            "samples": _samples(observed.samples, _since()),
            **(_for_operators(catalog, settings, observed) if sees_all else {}),
        }
        return shown, {"Cache-Control": "no-store"}

    return blueprint


def _since() -> int:
    text = request.args.get("since", "0")
    if not text.isascii() or not text.isdigit():
        raise BadInput(f"since: expected a sample's number, given {text[:40]!r}")
    # Shortened, as Python takes no more than 4300 digits.
    return int(text[:18])


def _samples(samples: LineRing, since: int) -> list[dict[str, Any]]:
    newer = takewhile(lambda sample: sample["n"] > since, samples.newest_first())
    return list(newer)[::-1]


def _for_operators(
    catalog: Catalog, settings: Settings, observed: Observed
) -> dict[str, Any]:
    return {
        "processes": [asdict(each) for each in processes(observed.notes)],
        "restarts": observed.ended(),
        "settings": settings_rows(settings, catalog.models()),
        "errors": observed.errors.newest(),
    }
