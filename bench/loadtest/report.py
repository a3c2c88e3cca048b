"""Write the report: Markdown, the same as one HTML page, and plots."""

import base64
import html
import re
from pathlib import Path
from string import Template

from markdown_it import MarkdownIt

from bench.figures import Cell
from bench.loadtest.tables import LoadTest, Wanted, markdown

_PAGE = Path(__file__).with_name("page.html")
_SIZE_INCHES = (5.8, 4.6)
_CHARTS = {
    "mean.png": "Mean response time",
    "p95.png": "95 % of answers come within",
    "rate.png": "Answers per second",
    "batch.png": "Mean size of a batch",
}


def write(campaign: LoadTest, folder: Path, wanted: Wanted | None = None) -> None:
    """Write report.md, report.html and the PNG plots into `folder`.

    With `wanted` the report also has what it costs.
    """
    answered = [cell for cell in campaign.cells if cell.seen.rate]
    pictures = list(_CHARTS) if answered else []
    for name in pictures:
        draw(name, answered, campaign.simulated, folder / name)
    text = markdown(campaign, wanted, pictures)
    (folder / "report.md").write_text(text)
    page = Template(_PAGE.read_text()).substitute(
        title=html.escape(f"Load test of {campaign.model}"),
        body=_with_pictures(
            MarkdownIt("commonmark", {"html": False}).enable("table").render(text),
            folder,
        ),
    )
    (folder / "report.html").write_text(page)


def draw(name: str, cells: list[Cell], simulated: bool, file: Path) -> None:
    """Draw one of _CHARTS: a line for each set-up by users."""
    from bench import plots  # noqa: PLC0415 # slow to import

    series: dict[str, list[tuple[int, float]]] = {}
    for cell in cells:
        seen = cell.seen
        value = {
            "mean.png": seen.mean_s,
            "p95.png": seen.p95_s,
            "rate.png": seen.rate,
            "batch.png": seen.batch_rows or 1.0,
        }[name]
        series.setdefault(cell.server, []).append((cell.clients.count, value))
    with plots.saved(file, _SIZE_INCHES) as (axes,):
        plots.lines(axes, series, "users")
        device = ", simulated device" if simulated else ""
        axes.set_title(f"{_CHARTS[name]}{device}")
        if name in ("mean.png", "p95.png"):
            plots.log_seconds(axes)
        else:
            plots.from_zero(axes, "rows" if name == "batch.png" else "requests/s")


def _with_pictures(page: str, folder: Path) -> str:
    """Return the page with the pictures in itself."""

    def inside(found: re.Match[str]) -> str:
        data = base64.b64encode((folder / found[1]).read_bytes()).decode()
        return f'src="data:image/png;base64,{data}"'

    return re.sub(r'src="(\w+\.png)"', inside, page)
