"""Where reports go: reports/<date>, with a number from the second of a day on."""

import datetime
from pathlib import Path

from testing.server import ROOT


def today() -> str:
    """The date as ISO 8601, in UTC."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def new_folder(wanted: Path | None) -> Path:
    """The report's folder, new; a second one of the same day has a number.

    Raises:
        FileExistsError: `wanted` is there already.
    """
    first = wanted or ROOT / "reports" / today()
    folder, number = first, 1
    while wanted is None and folder.exists():
        number += 1
        folder = first.with_name(f"{first.name}-{number}")
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(f"{folder} has a report already")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
