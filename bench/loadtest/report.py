"""Write the report: Markdown, one HTML page, and plots."""

import base64
import re
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from bench.loadtest import plots, tables
from bench.loadtest.analysis import Campaign, Figures, Wanted, figures_of

_ALT = {
    "mean.png": "Mean response time in seconds by users, a line for each set-up",
    "p95.png": "95th percentile of the response time in seconds by users",
    "rate.png": "Answers per second by users",
    "batch.png": "Mean rows of a batch by users",
    "over_time.png": "Response time of each answer over the measurement, by set-up",
}


def write(
    campaign: Campaign,
    folder: Path,
    price_usd_per_hour: float | None = None,
    p95_limit_s: float = 1.0,
    target_rate: float = 100.0,
) -> None:
    """Write report.md, report.html and the PNG plots into `folder`.

    With the price of an instance-hour in dollars the report also has what
    `target_rate` requests per second cost a month within a p95 of `p95_limit_s`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows = _figures(campaign)
    pictures = plots.draw(campaign, rows)
    for name in _ALT:
        (folder / name).unlink(missing_ok=True)
    for name, png in pictures.items():
        (folder / name).write_bytes(png)
    wanted = None
    if price_usd_per_hour is not None:
        wanted = Wanted(price_usd_per_hour, p95_limit_s, target_rate)
    context = {
        "campaign": campaign,
        "headline": tables.headline(campaign, rows),
        "complaints": tables.complaints(campaign, rows),
        "figures": tables.figures_table(rows),
        "costs": tables.cost_table(rows, wanted) if wanted else None,
        "cost_words": tables.cost_words(wanted) if wanted else "",
        "notes": tables.notes(campaign, rows),
        "pictures": pictures,
        "alt": _ALT,
    }
    for name in ("report.md", "report.html"):
        text = _TEMPLATES.get_template(f"{name}.j2").render(context)
        (folder / name).write_text(text, encoding="utf-8")


def failed(campaign: Campaign) -> bool:
    """Return whether a cell is not sound, or the run stopped or measured nothing."""
    rows = _figures(campaign)
    return campaign.stopped or not rows or not all(row.sound for row in rows)


def _figures(campaign: Campaign) -> list[Figures]:
    return [figures_of(cell, simulated=campaign.simulated) for cell in campaign.cells]


def _data_uri(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def _markdown(text: object) -> str:
    """Return one line in which Markdown sees no markup, for tables too."""
    return re.sub(r"([\\`*_\[\]<>|&])", r"\\\1", " ".join(str(text).split()))


_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=select_autoescape(["html.j2"], default=False),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_TEMPLATES.filters |= {"markdown": _markdown, "data_uri": _data_uri}
