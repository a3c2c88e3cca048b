"""The report in Markdown: figures beside the article's and the best, and costs."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.figures import THINK_S, Cell, Seen
from bench.loadtest.run import LoadTest
from bench.report import table

HOURS_A_MONTH = 720  # 30 days, as the article calculates
_ARTICLE_RATE = 2.0
_NONE = "-"
# Mean response in seconds by users, as "Optimize response time of your ML API in
# production" measured it on its GPU of 0.3 s a batch.
_ARTICLE_S: dict[str, dict[int, float]] = {
    "naive": {1: 0.332, 5: 0.431, 20: 4.1},
    "5 workers": {20: 2.05},
    "batching, 500 ms": {1: 0.8, 20: 0.68},
}
# Mean response in seconds by users, for one device of 0.3 s a batch and a mean think
# time of 2 s: the exact optimum of a semi-Markov decision process.
_BEST_S = {1: 0.300, 5: 0.376, 20: 0.444, 64: 0.453}
_NOTES = (
    "Users think {0:g} to {1:g} s between requests. Times are of answers with status "
    "200, as the client sees them; p95: 95 % of them took no longer.",
    "Article: Optimize response time of your ML API in production, measured on its own "
    "GPU of 0.3 s a batch; 5 workers: about half of 4.1 s; 500 ms timeout: 0.3 + 0.5 s "
    "at 1 user, 4.1 / 6 s at 20.",
)
_BEST_NOTE = (
    "Best mean: the least that any rule for starting batches reaches on one device of "
    "0.3 s a batch with exponential think times of the same mean; uniform ones come "
    "out up to 2 % lower. Workers have a simulated device each: several can do better "
    "than one."
)


@dataclass(frozen=True)
class Wanted:
    """Dollars per instance-hour, largest p95 in seconds, total requests per second."""

    price_usd: float
    p95_limit_s: float
    target_rate: float

    def bill(self, rate: float) -> tuple[str, str]:
        """Return how many instances of `rate` requests/s, and dollars a month."""
        instances = math.ceil(self.target_rate / rate)
        usd_a_month = instances * self.price_usd * HOURS_A_MONTH
        return f"{instances:,}", f"${usd_a_month:,.0f}"


def markdown(
    campaign: LoadTest,
    wanted: Wanted | None,
    pictures: Sequence[str],
    more: Sequence[str] = (),
) -> str:
    """Return the report; `pictures` are the names of files beside it."""
    real = "Real work on this machine."
    device = "The device is simulated: it takes 0.3 s for any batch, computes nothing."
    lines = [f"# Load test of {escaped(campaign.model)}", ""]
    lines += [device if campaign.simulated else real, campaign.header, ""]
    for complaint in _complaints(campaign):
        lines += [f"**{escaped(complaint)}**", ""]
    lines += [escaped(headline(campaign.cells)), ""]
    if campaign.cells:
        heading = ("set-up", "users", *Seen.HEADING, "article's mean (ms)")
        best = ("best mean, one device (ms)",) if campaign.simulated else ()
        lines += table((*heading, *best, "problem"), _figures(campaign))
        notes = (*_NOTES, _BEST_NOTE) if campaign.simulated else _NOTES
        lines += ["", *(f"- {note.format(*THINK_S)}" for note in notes), ""]
    if wanted is not None:
        heading = ("set-up", "best load (users)", "p95 (ms)")
        heading += ("requests/s of an instance", "instances", "dollars a month")
        lines += ["## Cost", "", _cost_words(wanted), ""]
        lines += [*table(heading, _costs(campaign, wanted)), ""]
    lines += more
    for name in pictures:
        lines += [f"![{name.removesuffix('.png')} by users]({name})", ""]
    return "\n".join(lines)


def escaped(text: object) -> str:
    """Return one line in which Markdown sees no markup, for tables too."""
    return re.sub(r"([\\`*_\[\]<>|&])", r"\\\1", " ".join(str(text).split()))


def headline(cells: Sequence[Cell]) -> str:
    """Return the least and the largest mean at the largest load that all answered."""
    by_users: dict[int, list[tuple[float, str]]] = {}
    for cell in cells:
        if cell.seen.rate:
            means = by_users.setdefault(cell.clients.count, [])
            means.append((cell.seen.mean_s, cell.server))
    if not by_users:
        return "No answer came: there is nothing to compare."
    users = max(by_users, key=lambda count: (len(by_users[count]), count))
    (least_s, best), (most_s, worst) = min(by_users[users]), max(by_users[users])
    at = f"At {users} {'user' if users == 1 else 'users'} the mean response time is"
    if best == worst:
        return f"{at} {least_s:.3f} s."
    least, most = f"{best} ({least_s:.3f} s)", f"{worst} ({most_s:.3f} s)"
    return f"{at} least with {least} and greatest with {most}."


def _complaints(campaign: LoadTest) -> Iterator[str]:
    """Yield sentences about what was interrupted, not measured, or failed."""
    if campaign.stopped:
        yield "The run was stopped by hand; below is what it had by then."
    if not campaign.cells:
        yield "Nothing was measured."
    bad = sum(not cell.sound for cell in campaign.cells)
    if bad:
        yield f"{bad} of {len(campaign.cells)} rows have a problem."


def _figures(campaign: LoadTest) -> Iterator[tuple[str, ...]]:
    for cell in campaign.cells:
        users = cell.clients.count
        compared = [_ARTICLE_S.get(cell.server, {}).get(users)]
        if campaign.simulated:
            compared.append(_BEST_S.get(users))
        yield (
            *(escaped(cell.server), str(users), *cell.seen.row()),
            *(_NONE if each is None else f"{1000 * each:.0f}" for each in compared),
            "" if cell.sound else escaped(cell.complaint()),
        )


def _costs(campaign: LoadTest, wanted: Wanted) -> Iterator[tuple[str, ...]]:
    """Yield what the target rate costs, also by the article's calculation."""
    for setup in dict.fromkeys(cell.server for cell in campaign.cells):
        best = best_load(campaign.cells, setup, wanted.p95_limit_s)
        if best is None:
            yield escaped(setup), "none within the limit", *[_NONE] * 4
        else:
            seen = best.seen
            figures = f"{1000 * seen.p95_s:.0f}", f"{seen.rate:.2f}"
            users = str(best.clients.count)
            yield escaped(setup), users, *figures, *wanted.bill(seen.rate)
    rate = f"{_ARTICLE_RATE:.2f}"
    yield "the article's sum", _NONE, _NONE, rate, *wanted.bill(_ARTICLE_RATE)


def best_load(cells: Sequence[Cell], setup: str, p95_limit_s: float) -> Cell | None:
    """Return the sound cell with the highest rate and a p95 within the limit."""
    fitting = [
        cell
        for cell in cells
        if cell.server == setup and cell.sound and cell.seen.p95_s <= p95_limit_s
    ]
    return max(fitting, key=lambda cell: cell.seen.rate, default=None)


def _cost_words(wanted: Wanted) -> str:
    return (
        f"For {wanted.target_rate:g} requests/s at {wanted.price_usd:g} dollars an "
        f"instance-hour and {HOURS_A_MONTH} hours a month. The rate of an instance is "
        f"the set-up's highest measured with a p95 of at most {wanted.p95_limit_s:g} s "
        "and no errors; beyond the largest load measured it may manage more."
    )
