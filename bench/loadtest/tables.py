"""The report's tables and sentences, as plain text for Markdown and HTML."""

from collections.abc import Sequence
from dataclasses import dataclass

from bench.loadtest.analysis import (
    HOURS_A_MONTH,
    LITTLE_LIMIT_PERCENT,
    Campaign,
    Figures,
    Little,
    Wanted,
    best_loads,
    common_load,
)

_NONE = "-"
_ARTICLE_RATE = 2.0


@dataclass(frozen=True)
class Row:
    """The text of a row's cells; `marked`: something is wrong with it."""

    cells: tuple[str, ...]
    marked: bool = False


@dataclass(frozen=True)
class Table:
    """Column headings with their units, and the rows."""

    heading: tuple[str, ...]
    rows: tuple[Row, ...]


def figures_table(rows: Sequence[Figures]) -> Table:
    """Return each cell's figures beside the article's and the best possible."""
    heading = (
        *("set-up", "users", "requests/s", "mean (s)", "p50 (s)", "p95 (s)", "p99 (s)"),
        *("mean batch (rows)", "article's mean (s)", "best mean, one device (s)"),
        *("Little's law", "problem or errors"),
    )
    return Table(heading, tuple(_figures_row(row) for row in rows))


def _figures_row(row: Figures) -> Row:
    cells = (
        *(row.setup, str(row.users), f"{row.rate:.2f}"),
        *map(seconds, (row.mean_s, row.p50_s, row.p95_s, row.p99_s)),
        _NONE if row.mean_batch is None else f"{row.mean_batch:.1f}",
        _NONE if row.article_s is None else f"{row.article_s:g}",
        *(seconds(row.best_s), _little(row.little), _problem(row)),
    )
    broken = row.little is not None and row.little.broken
    return Row(cells, marked=broken or not row.sound)


def _little(little: Little | None) -> str:
    if little is None:
        return _NONE
    text = f"{little.deviation_percent:+z.1f} %"
    if not little.broken:
        return text
    limit = f"{text}: beyond {LITTLE_LIMIT_PERCENT:g} %"
    chance = f" (chance: ±{little.chance_percent:.0f} %)"
    return limit + chance if little.by_chance else limit


def _problem(row: Figures) -> str:
    words = [row.problem] if row.problem else []
    words += [
        f"{count} x {f'status {status}' if status else 'no answer'}"
        for status, count in row.errors.items()
    ]
    return "; ".join(words) or ("" if row.answers else "no answers")


def cost_table(rows: Sequence[Figures], wanted: Wanted) -> Table:
    """Return what the target rate costs a month, also by the article's calculation."""
    heading = (
        *("set-up", "best load (users)", "p95 (s)", "requests/s of an instance"),
        *("instances", "dollars a month"),
    )
    found = []
    for setup, load in best_loads(rows, wanted.p95_limit_s).items():
        if load is None:
            found.append(Row((setup, "none within the limit", *[_NONE] * 4)))
        else:
            words = (setup, str(load.users), seconds(load.p95_s), f"{load.rate:.2f}")
            found.append(Row((*words, *_bill(load.rate, wanted))))
    last = ("the article's sum", _NONE, _NONE, f"{_ARTICLE_RATE:.2f}")
    return Table(heading, (*found, Row((*last, *_bill(_ARTICLE_RATE, wanted)))))


def _bill(rate: float, wanted: Wanted) -> tuple[str, str]:
    instances, usd_a_month = wanted.bill(rate)
    return f"{instances:,}", f"${usd_a_month:,.0f}"


def seconds(value: float | None) -> str:
    """Return seconds with three decimals below 1, two above."""
    if value is None:
        return _NONE
    return f"{value:.3f}" if value < 1 else f"{value:.2f}"


def headline(campaign: Campaign, rows: Sequence[Figures]) -> str:
    """Return the least and the largest mean at the largest load that all answered."""
    users = common_load(campaign.cells)
    known = sorted(
        (row.mean_s, row.setup)
        for row in rows
        if row.users == users and row.mean_s is not None
    )
    if not known:
        return "No answer came: there is nothing to compare."
    (least, best), (most, worst) = known[0], known[-1]
    noun = "user" if users == 1 else "users"
    if best == worst:
        return f"At {users} {noun} the mean response time is {seconds(least)} s."
    return (
        f"At {users} {noun} the mean response time is least with {best} "
        f"({seconds(least)} s) and greatest with {worst} ({seconds(most)} s)."
    )


def complaints(campaign: Campaign, rows: Sequence[Figures]) -> list[str]:
    """Return sentences about what was interrupted, not measured, or failed."""
    found = []
    if campaign.stopped:
        found.append("The run was stopped by hand; below is what it had by then.")
    if not rows:
        found.append("Nothing was measured.")
    measured = {(row.setup, row.users) for row in rows}
    missing = [
        f"{setup} at {users}"
        for setup in dict.fromkeys(row.setup for row in rows)
        for users in sorted({row.users for row in rows})
        if (setup, users) not in measured
    ]
    if missing:
        found.append(f"Not measured: {', '.join(missing)}.")
    bad = sum(not row.sound for row in rows)
    if bad:
        found.append(f"{bad} of {len(rows)} rows have a problem, errors or no answers.")
    return found


def notes(campaign: Campaign, rows: Sequence[Figures]) -> list[str]:
    """Return what a reader has to know of the table's columns."""
    low, high = campaign.cells[0].think_s if campaign.cells else (0.0, 0.0)
    think = f"{low:g} to {high:g} s between requests" if high else "no time"
    found = [
        f"Users think {think}. Times are of answers with status 200, as the client "
        "sees them; p95: 95 % of them took no longer.",
        "Mean batch: over batches, from each answer's X-Batch-Size.",
        "Little's law: users = rate x (response + think), over all requests. A row "
        f"that deviates by more than {LITTLE_LIMIT_PERCENT:g} % is marked: its load "
        "had not settled, or it has so few requests that chance can do it (two "
        "standard errors).",
        "Article: Optimize response time of your ML API in production, measured on "
        "its own GPU of 0.3 s a batch; 5 workers: about half of 4.1 s; 500 ms "
        "timeout: 0.3 + 0.5 s at 1 user, 4.1 / 6 s at 20.",
    ]
    if any(row.best_s is not None for row in rows):
        found.append(
            "Best mean: the least that any rule for starting batches reaches on one "
            "device of 0.3 s a batch with exponential think times of the same mean; "
            "uniform ones come out up to 2 % lower. "
            "Workers have a simulated device each: several can do better than one."
        )
    return found


def cost_words(wanted: Wanted) -> str:
    """Return the assumptions of the cost table."""
    return (
        f"For {wanted.target_rate:g} requests/s at {wanted.price_usd:g} dollars an "
        f"instance-hour and {HOURS_A_MONTH} hours a month. The rate of an instance is "
        f"the set-up's highest measured with a p95 of at most {wanted.p95_limit_s:g} s "
        "and no errors; beyond the largest load measured it may manage more."
    )
