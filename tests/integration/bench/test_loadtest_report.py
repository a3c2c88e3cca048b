"""The report of a load test: complete, interrupted, failed and empty campaigns."""

import re
from html.parser import HTMLParser

import pytest
from PIL import Image

from bench.figures import Cell, Clients, Seen
from bench.loadtest import report
from bench.loadtest.run import LoadTest
from bench.loadtest.tables import Wanted, best_load, headline, markdown

PICTURES = {"mean.png", "p95.png", "rate.png", "batch.png"}
MEANS = {
    "naive": {1: 0.30, 5: 0.41, 20: 4.0},
    "batching, 500 ms": {1: 0.80, 5: 0.69, 20: 0.60},
    "batching, auto": {1: 0.30, 5: 0.37, 20: 0.44},
}
HEADER = "`make loadtest PRICE=3.06` on 2026-11-22; cores: 2."
WANTED = Wanted(price_usd=3.06, p95_limit_s=1.0, target_rate=100.0)


def cell(setup, users, mean_s, problem=None, **figures):
    rate = figures.pop("rate", users / (2 + mean_s))
    seen = Seen(rate, mean_s, mean_s, 1.1 * mean_s, 1.2 * mean_s, **figures)
    return Cell("slow", setup, "", Clients(users, thinks=True), 0, seen, problem)


def campaign(cells=None, simulated=True):
    if cells is None:
        cells = [
            cell(setup, users, mean_s, batch_rows=1.0)
            for setup, by_users in MEANS.items()
            for users, mean_s in by_users.items()
        ]
    return LoadTest(HEADER, len(cells), cells, model="slow", simulated=simulated)


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
    """A whole campaign's Markdown and HTML with its cost, and its folder."""
    folder = tmp_path_factory.mktemp("whole")
    report.write(campaign(), folder, WANTED)
    texts = ((folder / name).read_text() for name in ("report.md", "report.html"))
    return *texts, folder


def test_table_has_a_row_for_each_cell(whole):
    """The Markdown table has each cell's figures beside the article's and the best."""
    markdown, *_ = whole
    (row,) = re.findall(r"^\| naive \| 20 \|.*$", markdown, re.M)
    assert [each.strip() for each in row.split("|")[3:-1]] == [
        *("3.33", "4000.00", "4000.00", "4400.00", "4800.00", "1.0", "0", "0 of 0"),
        *("4100", "444", ""),
    ]
    for setup, by_users in MEANS.items():
        for users in by_users:
            assert f"\n| {setup} | {users} |" in markdown


def test_html_and_markdown_have_the_same_content(whole):
    """The page has what the Markdown has: words, figures, cost, machine, command."""
    markdown, page, _ = whole
    reader = Reader(page)
    for words in (
        "The device is simulated",
        "make loadtest PRICE=3.06",
        "At 20 users the mean response time is least with batching, auto (0.440 s)",
        "$110,160",
        "cores: 2",
    ):
        assert words in markdown
        assert words in reader.said
    assert reader.elements.count("table") == 2
    # All that the page loads is inside it, and it runs no script.
    assert len(reader.sources) == len(PICTURES) + 1
    assert all(source.startswith("data:") for source in reader.sources)
    assert "script" not in reader.elements


def test_plots_are_not_blank(whole):
    """Every picture is there in several colors, and the Markdown shows it."""
    markdown, _, folder = whole
    assert {path.name for path in folder.glob("*.png")} == PICTURES
    for name in PICTURES:
        assert f"]({name})" in markdown
        with Image.open(folder / name) as picture:
            assert min(picture.size) > 500
            colors = picture.convert("RGB").getcolors(maxcolors=1 << 20)
        assert max(count for count, _ in colors) < 0.99 * sum(n for n, _ in colors)
        assert len(colors) > 100


def test_real_work_is_not_called_simulated():
    """A real model's report never says simulated, and has no cost without a price."""
    text = markdown(campaign(simulated=False), None, [])
    assert "simulated" not in text
    assert "## Cost" not in text
    assert "| 444 |" not in text


def test_empty_campaign_has_failed(tmp_path):
    """A campaign without cells has failed, and its report says so."""
    made = campaign([])
    assert made.status() == 1
    report.write(made, tmp_path, WANTED)
    for name in ("report.md", "report.html"):
        text = (tmp_path / name).read_text()
        assert "Nothing was measured." in text
        assert "$110,160" in text
    assert not list(tmp_path.glob("*.png"))


def test_interrupted_campaign_has_failed():
    """A stopped campaign ends with 130, and its report says so."""
    made = campaign()
    assert made.status() == 0
    made.stopped = True
    assert made.status() == 130
    assert "The run was stopped by hand" in markdown(made, None, [])


def test_problems_and_errors_are_in_their_rows():
    """A row with a problem or errors says so, and the campaign has failed."""
    never = cell("naive", 1, 0.0, "not within 60 s", rate=0.0)
    made = campaign([never, cell("naive", 5, 0.4, errors=1, not_2xx=2)])
    assert made.status() == 1
    text = markdown(made, None, [])
    assert "2 of 2 rows have a problem" in text
    assert re.search(r"\| naive \| 1 \|.*\| not within 60 s \|", text)
    words = "1 without an answer, 2 not 2xx"
    assert re.search(rf"\| naive \| 5 \|.*\| 5 thinking clients: {words}", text)


def test_markup_in_names_and_problems_is_escaped(tmp_path):
    """Markup in names and problems is shown, and makes neither elements nor columns."""
    evil = "<script>alert('&$a_b$')</script>"
    never = cell(evil, 5, 0.4, f"{evil} |\n| `row`", rate=0.0)
    made = campaign([never])
    made.model = evil
    report.write(made, tmp_path)
    reader = Reader((tmp_path / "report.html").read_text())
    assert "script" not in reader.elements
    assert reader.said.count(evil) == 4
    text = (tmp_path / "report.md").read_text()
    assert not re.search(r"(?<!\\)<script", text)
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1


def test_headline_compares_the_largest_load_that_most_answered():
    """Set-ups are compared at the most users whom as many as possible answered."""
    cells = [cell("one", 5, 0.3), cell("other", 5, 0.4), cell("one", 20, 0.5)]
    assert headline(cells) == (
        "At 5 users the mean response time is least with one (0.300 s) and greatest "
        "with other (0.400 s)."
    )
    third = cell("third", 5, 0.0, rate=0.0)
    assert headline([*cells, third]).startswith("At 5 users")
    assert headline([third]) == "No answer came: there is nothing to compare."


def test_cost_is_that_of_the_article():
    """2 requests/s an instance, 100 wanted, $3.06 an hour: 50 for $110,160 a month."""
    assert WANTED.bill(2.0) == ("50", "$110,160")


@pytest.mark.parametrize(
    ("rate", "instances"), [(100.0, 1), (1000.0, 1), (99.9, 2), (33.4, 3), (33.3, 4)]
)
def test_instances_are_rounded_up(rate, instances):
    """A part of an instance is paid as a whole one."""
    assert WANTED.bill(rate)[0] == str(instances)


def test_best_load_is_the_highest_rate_within_the_limit():
    """A set-up's best load has a p95 within the limit, and no failed request."""
    cells = [cell("naive", 1, 0.3), cell("naive", 5, 0.4), cell("naive", 20, 4.0)]
    assert best_load(cells, "naive", 1.0) == cells[1]
    assert (
        best_load([*cells, cell("naive", 9, 0.1, errors=1)], "naive", 1.0) == cells[1]
    )
    assert best_load(cells, "naive", 0.1) is None
    assert best_load(cells, "auto", 1.0) is None
