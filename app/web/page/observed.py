"""What all processes of a server note of themselves, for the page."""

from collections.abc import Callable
from dataclasses import dataclass

from app.run_dir.notes import Notes
from app.web.page.error_log import ErrorLog
from app.web.page.ring import LineRing


@dataclass(frozen=True)
class Observed:
    """Samples and errors; `notes` on processes, and the number that have `ended`."""

    samples: LineRing
    errors: ErrorLog
    notes: Notes
    ended: Callable[[], int]
