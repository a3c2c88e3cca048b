"""Judges a rollout by its counts: is the candidate worse than it may be?

Each criterion compares a rate of the candidate with what is allowed, and with the same
rate of the version that served before, by a sequential test (`sequential.py`). The
second comparison keeps what hits both sides, such as a pause of the machine, from
counting against the candidate.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from app.promotion.counts import EDGES_S, PHASES, RATIO, ArmCounts, Counts, Rate
from app.promotion.sequential import against_at_least, against_no_worse
from app.settings.promotion_config import PromotionConfig

# The most that the chance of a false alarm may be in a whole rollout.
ALPHA = 0.002
_CRITERIA = 4
# A phase's tests start anew where their other side changes: from an earlier phase's
# requests to those of this phase, once these suffice.
_STARTS = 2
# So many requests of the other side are enough for a comparison; if it has them in no
# phase, so many have to do.
_ENOUGH, _LEAST = 100, 10
# A burst of the load lasts for so many groups. It is no evidence where the other side
# is of another time.
_GROUPS_OF_A_BURST = 10
# A slow start is no slowdown: the first requests find caches cold.
_ENOUGH_SLOW = 20
# Shares of requests. Slow is above the 99th percentile; an outage is more than half.
_MAX_NAN, _MAX_SLOW, _MAX_UNAVAILABLE = 0.001, 0.01, 0.5
# As improbable is it that the 99th percentile is above its bound. The comparison with
# the other side does not depend on the bound.
_BOUND_EVIDENCE = math.log(20)
# Less is not noticed: a version with few requests finds the processor's caches cold.
_LEAST_SLOWDOWN_S = 0.002


class _Sides(NamedTuple):
    """The candidate in its phase, and the other side beside it or before.

    `threshold` is the log evidence that each criterion needs. So many groups of hits
    count as one as `groups` says.
    """

    candidate: ArmCounts
    other: ArmCounts | None
    threshold: float
    groups: float = 1.0

    def excess(
        self, rate_of: Callable[[ArmCounts], Rate], floor: float, factor: float = 1.0
    ) -> tuple[str, str] | None:
        """Return words on the own rate and on the other's if the own is too high.

        Too high is above `floor` and above `factor` times the other side's; without
        enough requests of the other side above `floor`. None: it is not.
        """
        own, others, words = rate_of(self.candidate), (0.0, 0.0), ""
        if self.other is not None:
            rate = rate_of(self.other)
            # The other side's hits may come in groups as large as the candidate's.
            size = self.groups * max(own.group_size, rate.group_size)
            others = rate.hits / size, rate.trials / size
            words = f"; {_percent(rate)} of the version before"
        size = self.groups * own.group_size
        owns = own.hits / size, own.trials / size
        if against_no_worse(owns, others, floor, factor) < self.threshold:
            return None
        return f"{own.hits:,} of {own.trials:,} requests ({_percent(own)})", words


def problem(counts: Counts, phase: int, config: PromotionConfig) -> str:
    """Return why the candidate is sent back, with the numbers, or "".

    `phase` is the newest one with requests of the candidate; counts of later phases do
    not matter. It depends on the counts alone, so that all processes come to the same.
    """
    candidate = counts.side(phase, phase, is_candidate=True)
    sides = _Sides(candidate, _other(counts, phase), _threshold(config))
    loaded = _under_load(sides, counts, phase)
    return (
        _errors(sides, config)
        or _unavailable(loaded)
        or _not_a_number(sides)
        or _slowness(loaded, counts, phase, config)
    )


def _threshold(config: PromotionConfig) -> float:
    """Return the log evidence that one criterion needs in one phase."""
    phases = min(len(config.steps) + 1, PHASES)  # with the watch after the last step
    return math.log(phases * _CRITERIA * _STARTS / ALPHA)


def _other(counts: Counts, phase: int) -> ArmCounts | None:
    """Return the other side in the first of its phases with enough requests."""
    for enough in (_ENOUGH, _LEAST):
        for number in _phases(counts, phase):
            side = counts.side(number, number, is_candidate=False)
            if side.requests >= enough:
                return side
    return None


def _under_load(sides: _Sides, counts: Counts, phase: int) -> _Sides:
    """Return the sides for what depends on the load, so on the time.

    In its own phase few requests of the other side tell more than many of another.
    """
    beside = counts.side(phase, phase, is_candidate=False)
    if beside.unavailable.trials >= _LEAST:
        return sides._replace(other=beside)
    return sides._replace(groups=_GROUPS_OF_A_BURST)


def _phases(counts: Counts, phase: int) -> range:
    """Return the phases of the other side, in the order in which they are compared.

    Where it has too few requests in this phase, as when the candidate gets all, the
    oldest come first: there it had the device for itself, as the candidate has now. A
    slow candidate that shares a device slows the other side down.
    """
    last = min(phase, PHASES - 1)
    if counts.side(last, last, is_candidate=False).requests >= _LEAST:
        return range(last, -1, -1)
    return range(last + 1)


def _errors(sides: _Sides, config: PromotionConfig) -> str:
    found = sides.excess(lambda side: side.errors, config.max_error_rate)
    if found is None:
        return ""
    rate, others = found
    allowed = f"{100 * config.max_error_rate:g} % are allowed (max_error_rate)"
    return f"500, 504 or 507 for {rate}; {allowed}{others}"


def _unavailable(sides: _Sides) -> str:
    """Judge refusals: an open circuit breaker hides the errors that opened it."""
    found = sides.excess(lambda side: side.unavailable, _MAX_UNAVAILABLE)
    return f"500, 503, 504 or 507 for {found[0]}{found[1]}" if found else ""


def _not_a_number(sides: _Sides) -> str:
    found = sides.excess(lambda side: side.not_a_number, _MAX_NAN, factor=2)
    if found is None:
        return ""
    rate, others = found
    return f"NaN in the answers to {rate}; {100 * _MAX_NAN:g} % are allowed{others}"


def _slowness(
    sides: _Sides, counts: Counts, phase: int, config: PromotionConfig
) -> str:
    bound_s = None
    if sides.candidate.requests >= _ENOUGH_SLOW:
        bound_s = _bound(counts, phase)
    if bound_s is None:
        return ""
    limit_s = max(config.max_slowdown * bound_s, bound_s + _LEAST_SLOWDOWN_S)
    edge = math.ceil(math.log(limit_s / EDGES_S[0]) / math.log(RATIO) - 1e-9)
    if edge >= len(EDGES_S):
        return ""
    found = sides.excess(lambda side: side.slower_than(edge), _MAX_SLOW)
    if found is None:
        return ""
    rate, others = found
    return (
        f"more than {_ms(EDGES_S[edge])} for {rate}; {100 * _MAX_SLOW:g} % are "
        f"allowed{others}; its 99th percentile is at most {_ms(bound_s)}, and "
        f"{config.max_slowdown:g} times as much is allowed (max_slowdown)"
    )


def _bound(counts: Counts, phase: int) -> float | None:
    """Return what the other side's 99th percentile is at most, in seconds.

    It is taken of as many phases as are needed to know it; None if all of them are not
    enough.
    """
    phases = _phases(counts, phase)
    for number in phases:
        first, last = sorted((phases[0], number))
        side = counts.side(first, last, is_candidate=False)
        size = _size_of_slow_groups(side)
        hits, trials = side.latencies[1:] / size, side.latencies[0] / size
        known = np.flatnonzero(
            against_at_least(hits, trials, _MAX_SLOW) >= _BOUND_EVIDENCE
        )
        if len(known):
            return float(EDGES_S[known[0]])
    return None


def _size_of_slow_groups(side: ArmCounts) -> float:
    """Return Rate.group_size of the side's slowest requests, twice as many as 1 %.

    Of fewer, the groups would be too few to tell their size.
    """
    slowest = np.flatnonzero(side.latencies > 2 * _MAX_SLOW * side.latencies[0])
    return side.slower_than(int(slowest[-1]) - 1).group_size if len(slowest) else 1.0


def _percent(rate: Rate) -> str:
    return f"{_rounded(100 * rate.hits / max(rate.trials, 1))} %"


def _ms(seconds: float) -> str:
    return f"{_rounded(1000 * seconds)} ms"


def _rounded(value: float) -> str:
    """Return two significant digits, or all of a whole part: 4.5, 12, 1,240."""
    return f"{value:.2g}" if value < 10 else f"{value:,.0f}"  # noqa: PLR2004
