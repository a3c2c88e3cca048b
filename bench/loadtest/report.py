"""Write the report: Markdown, the same as one HTML page, and plots."""

import base64
import html
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from string import Template

from markdown_it import MarkdownIt

from bench.figures import Seen
from bench.loadtest.run import LoadTest
from bench.loadtest.tables import Wanted, markdown

_PAGE = Path(__file__).with_name("page.html")
_SIZE_INCHES = (5.8, 4.6)
# Title, value, and unit of the axis, empty for seconds.
_CHARTS: dict[str, tuple[str, Callable[[Seen], float], str]] = {
    "mean.png": ("Mean response time", lambda seen: seen.mean_s, ""),
    "p95.png": ("95 % of answers come within", lambda seen: seen.p95_s, ""),
    "rate.png": ("Answers per second", lambda seen: seen.rate, "requests/s"),
    "batch.png": ("Mean size of a batch", lambda seen: seen.batch_rows or 1, "rows"),
}


def write(
    campaign: LoadTest,
    folder: Path,
    wanted: Wanted | None = None,
    more: Sequence[str] = (),
) -> None:
    """Write report.md, report.html and the PNG plots into `folder`.

    With `wanted` the report also has what it costs; `more` are lines before the plots.
    """
    pictures = _draw(campaign, folder)
    text = markdown(campaign, wanted, pictures, more)
    (folder / "report.md").write_text(text)
    page = MarkdownIt("commonmark", {"html": False}).enable("table").render(text)

    def inside(found: re.Match[str]) -> str:
        data = base64.b64encode((folder / found[1]).read_bytes()).decode()
        return f'src="data:image/png;base64,{data}"'

    whole = Template(_PAGE.read_text()).substitute(
        title=html.escape(f"Load test of {campaign.model}"),
        body=re.sub(r'src="(\w+\.png)"', inside, page),
    )
    (folder / "report.html").write_text(whole)


def _draw(campaign: LoadTest, folder: Path) -> list[str]:
    """Draw a line for each set-up by users in each of _CHARTS; return their names."""
    from bench import plots  # noqa: PLC0415 # slow to import

    answered = [cell for cell in campaign.cells if cell.seen.rate]
    if not answered:
        return []
    device = ", simulated device" if campaign.simulated else ""
    for name, (title, value, unit) in _CHARTS.items():
        with plots.saved(folder / name, _SIZE_INCHES) as (axes,):
            plots.by_users(axes, answered, value)
            axes.set_title(f"{title}{device}")
            if unit:
                plots.from_zero(axes, unit)
            else:
                plots.log_seconds(axes)
    return list(_CHARTS)
