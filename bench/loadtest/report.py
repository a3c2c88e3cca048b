"""Write the report: Markdown, the same as one HTML page, and plots."""

import base64
import html
from collections.abc import Sequence
from pathlib import Path
from string import Template

from markdown_it import MarkdownIt

from bench.loadtest.run import LoadTest
from bench.loadtest.tables import Wanted, markdown

_PAGE = Path(__file__).with_name("page.html")


def write(
    campaign: LoadTest,
    folder: Path,
    wanted: Wanted | None = None,
    more: Sequence[str] = (),
) -> None:
    """Write report.md, report.html and the PNG plots into `folder`.

    With `wanted` the report also has what it costs; `more` are lines before the plots.
    """
    from bench.loadtest import plots  # noqa: PLC0415 # slow to import

    pictures = plots.draw(campaign, folder)
    text = markdown(campaign, wanted, pictures, more)
    (folder / "report.md").write_text(text)
    for name in pictures:
        data = base64.b64encode((folder / name).read_bytes()).decode()
        text = text.replace(f"]({name})", f"](data:image/png;base64,{data})")
    whole = Template(_PAGE.read_text()).substitute(
        title=html.escape(f"Load test of {campaign.model}"),
        body=MarkdownIt("commonmark", {"html": False}).enable("table").render(text),
    )
    (folder / "report.html").write_text(whole)
