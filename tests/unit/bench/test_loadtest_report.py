"""The report of a load test: complete, interrupted, failed and empty campaigns."""

import re
from html.parser import HTMLParser

import pytest
from PIL import Image

from bench.loadtest import report
from bench.loadtest.analysis import Campaign, Cell, Sample

PICTURES = {"mean.png", "p95.png", "rate.png", "batch.png", "over_time.png"}
MEANS = {
    "naive": {1: 0.30, 5: 0.41, 20: 4.0},
    "batching, 500 ms": {1: 0.80, 5: 0.69, 20: 0.60},
    "batching, auto": {1: 0.30, 5: 0.37, 20: 0.44},
}


COMMAND = "make loadtest PRICE=3.06"


def cell(setup, users, mean_s):
    """A cell that keeps Little's law, with answers evenly around `mean_s`."""
    made = Cell(setup, users, think_s=(1.0, 3.0), measured_s=40.0)
    count = 2 * round(users * 20 / (2 + mean_s))
    made.samples += [
        Sample(40 * place / count, mean_s * (0.9 + 0.2 * (place % 2)), 200, 1)
        for place in range(count)
    ]
    return made


def campaign(simulated=True):
    made = Campaign(
        COMMAND, "slow", simulated, "2026-11-22", {"cores": "2", "memory": "8 GiB"}
    )
    made.cells += [
        cell(setup, users, mean_s)
        for setup, by_users in MEANS.items()
        for users, mean_s in by_users.items()
    ]
    return made


@pytest.fixture
def no_pictures(monkeypatch):
    """Drawing takes a second, and not every test looks at what is drawn."""
    monkeypatch.setattr("bench.loadtest.plots.draw", lambda *_: {})


def written(made, folder, *args, **more):
    """The Markdown, the HTML and the names of the pictures."""
    report.write(made, folder, *args, **more)
    names = {path.name for path in folder.iterdir()}
    assert names - PICTURES == {"report.md", "report.html"}
    texts = ((folder / name).read_text() for name in ("report.md", "report.html"))
    return *texts, names & PICTURES


class Reader(HTMLParser):
    """The page's text, its elements, and all that it loads."""

    def __init__(self, page):
        super().__init__()
        self.said, self.elements, self.sources = "", [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.elements.append(tag)
        self.sources += [value for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data):
        self.said += data


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A whole campaign's report with its cost, and the folder it is in."""
    folder = tmp_path_factory.mktemp("whole")
    return *written(campaign(), folder, price_usd_per_hour=3.06), folder


def test_complete_campaign_has_not_failed():
    """A campaign whose every cell has answers and no errors has not failed."""
    assert not report.failed(campaign())


def test_table_has_a_row_for_each_cell(whole):
    """The Markdown table has each cell's figures beside the article's and the best."""
    markdown = whole[0]
    (row,) = re.findall(r"^\| naive \| 20 \|.*$", markdown, re.M)
    assert [each.strip() for each in row.split("|")[3:-1]] == [
        *("3.35", "4.00", "3.60", "4.40", "4.40", "1.0"),
        *("4.1", "0.444", "+0.5 %", ""),
    ]
    for setup, by_users in MEANS.items():
        for users in by_users:
            assert f"\n| {setup} | {users} |" in markdown


def test_html_and_markdown_have_the_same_content(whole):
    """The page has what the Markdown has: words, figures, cost, machine, command."""
    markdown, page, *_ = whole
    said = Reader(page).said
    for words in (
        "The device is simulated",
        "Made on 2026-11-22 by",
        "make loadtest PRICE=3.06",
        "At 20 users the mean response time is least with batching, auto (0.440 s)",
        "$110,160",
        "memory: 8 GiB",
    ):
        assert words in markdown
        assert words in said


def test_html_page_is_self_contained(whole):
    """All that the page loads is inside it, and it runs no script."""
    page = Reader(whole[1])
    assert len(page.sources) == len(PICTURES) + 1
    assert all(source.startswith("data:") for source in page.sources)
    assert "script" not in page.elements


def test_plots_are_not_blank(whole):
    """Every picture is there in several colors, and the Markdown shows it."""
    markdown, _, pictures, folder = whole
    assert pictures == PICTURES
    for name in PICTURES:
        assert f"]({name})" in markdown
        with Image.open(folder / name) as picture:
            assert min(picture.size) > 500
            colors = picture.convert("RGB").getcolors(maxcolors=1 << 20)
        assert max(count for count, _ in colors) < 0.99 * sum(n for n, _ in colors)
        assert len(colors) > 100


@pytest.mark.usefixtures("no_pictures")
def test_real_work_is_not_called_simulated(tmp_path):
    """A real model's report never says simulated."""
    markdown, page, _ = written(campaign(simulated=False), tmp_path)
    assert "simulated" not in markdown + page
    assert "## Cost" not in markdown


def test_empty_campaign_has_failed(tmp_path):
    """A campaign without cells has failed, and its report says so."""
    made = Campaign(COMMAND, "slow", True, "2026-11-22", {})
    markdown, page, pictures = written(made, tmp_path, 3.06)
    assert report.failed(made)
    assert pictures == set()
    for text in (markdown, Reader(page).said):
        assert "Nothing was measured." in text
        assert "$110,160" in text


@pytest.mark.usefixtures("no_pictures")
def test_interrupted_campaign_has_failed(tmp_path):
    """A stopped campaign has failed, and its report says so and what is missing."""
    made = campaign()
    made.stopped = True
    del made.cells[-1]
    made.cells[-1].samples.clear()
    markdown, page, _ = written(made, tmp_path)
    assert report.failed(made)
    for text in (markdown, Reader(page).said):
        assert "The run was stopped by hand" in text
        assert "Not measured: batching, auto at 20." in text
        assert "1 of 8 rows" in text
    assert re.search(r"\| batching, auto \| 5 \| 0.00 .* no answers \|", markdown)


def test_one_cell_is_enough_for_every_plot(tmp_path):
    """One set-up under one load is enough for every picture."""
    made = campaign()
    made.cells = [cell("naive", 1, 0.3)]
    markdown, _, pictures = written(made, tmp_path)
    assert pictures == PICTURES
    assert "At 1 user the mean response time is 0.300 s." in markdown


@pytest.mark.usefixtures("no_pictures")
def test_problems_and_errors_are_in_their_rows(tmp_path):
    """A row with a problem or errors says so, and the campaign has failed."""
    made = campaign()
    made.cells = made.cells[:2]
    made.cells[0].samples.clear()
    made.cells[0].problem = "not ready within 60 s"
    assert report.failed(made)
    made.cells[1].samples[:3] = [Sample(0.0, 0.1, code, 0) for code in (503, 0, 503)]
    markdown, *_ = written(made, tmp_path)
    assert "2 of 2 rows have a problem" in markdown
    assert re.search(r"\| naive \| 1 \|.*\| not ready within 60 s \|", markdown)
    rows = re.search(r"\| naive \| 5 \|.*\| 1 x no answer; 2 x status 503 \|", markdown)
    assert rows


@pytest.mark.usefixtures("no_pictures")
def test_row_that_breaks_littles_law_is_marked(tmp_path):
    """A row beyond 5 % is marked in both forms, and is no failure by itself."""
    made = campaign()
    made.cells = [cell("naive", 20, 0.5), cell("naive", 64, 0.5)]
    del made.cells[1].samples[::2]
    markdown, page, _ = written(made, tmp_path)
    assert markdown.count(": beyond 5 %") == 1
    assert page.count('<tr class="marked">') == 1
    assert not report.failed(made)


def test_markup_in_names_and_problems_is_escaped(tmp_path):
    """Markup in names and problems is shown, and makes neither elements nor columns."""
    made = campaign()
    evil = "<script>alert('&$a_b$')</script>"
    made.model = made.machine[evil] = evil
    made.cells = [cell(evil, 5, 0.4)]
    made.cells[0].problem = f"{evil} |\n| `row`"
    markdown, page, _ = written(made, tmp_path)
    reader = Reader(page)
    assert "script" not in reader.elements
    assert reader.said.count(evil) >= 5
    assert not re.search(r"(?<!\\)<script", markdown)
    assert r"\<script\>" in markdown
    tables = [line for line in markdown.splitlines() if line.startswith("|")]
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in tables}) == 1


def test_second_report_replaces_the_first(tmp_path):
    """Pictures of an earlier report in the same folder do not stay behind."""
    (tmp_path / "mean.png").write_bytes(b"of an earlier report")
    empty = Campaign(COMMAND, "slow", True, "2026-11-22", {})
    *_, pictures = written(empty, tmp_path)
    assert pictures == set()
