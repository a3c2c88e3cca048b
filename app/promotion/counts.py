"""Counts of a rollout's requests, by phase and side."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Table = npt.NDArray[np.int64]

# Later phases are counted as the last.
PHASES = 24
# Upper edges of the buckets of latency, in seconds: 5 % apart, so that a limit that is
# rounded up to one is at most 5 % too high. The last bucket has no upper edge.
RATIO, FIRST_EDGE_S = 1.05, 1e-4
EDGES_S: npt.NDArray[np.float64] = FIRST_EDGE_S * RATIO ** np.arange(275.0)
BUCKETS = len(EDGES_S) + 1
# The columns of a table; those of the two histograms follow, of requests and of pairs.
REQUESTS, ERRORS, REFUSED, NOT_A_NUMBER = range(4)
ERROR_PAIRS, FAILED_PAIRS, NAN_PAIRS = range(4, 7)
LATENCIES = 7
LATENCY_PAIRS = LATENCIES + BUCKETS
COLUMNS = LATENCY_PAIRS + BUCKETS
SHAPE = (PHASES, 2, COLUMNS)


class Rate(NamedTuple):
    """Hits among trials, and ordered pairs of hits in a group, each with itself too.

    A group is the requests that were answered together: a batch, or after a pause.
    """

    hits: int
    trials: int
    pairs: int

    @property
    def group_size(self) -> float:
        """The mean number of hits in the group of a hit, at least 1.

        So many hits are as much evidence as one. It is the design effect of cluster
        sampling (L. Kish, "Survey Sampling", 1965), for rare hits.
        """
        return max(self.pairs / self.hits, 1.0) if self.hits else 1.0


@dataclass(frozen=True)
class ArmCounts:
    """What one of two versions answered in a phase, or in several.

    `latencies` has the requests that took longer than each of EDGES_S, `latency_pairs`
    the pairs of these, of the answers with 2xx and 504; before the first edge all.
    """

    values: Table
    latencies: Table
    latency_pairs: Table

    @property
    def requests(self) -> int:
        """The number of requests without those that were refused with 503."""
        return int(self.values[REQUESTS])

    @property
    def errors(self) -> Rate:
        """The rate of 500, 504 and 507."""
        return self._rate(self.values[ERRORS], self.requests, ERROR_PAIRS)

    @property
    def unavailable(self) -> Rate:
        """The rate of errors and refusals (503), of all requests."""
        refused = self.values[REFUSED]
        hits = self.values[ERRORS] + refused
        return self._rate(hits, self.requests + refused, FAILED_PAIRS)

    @property
    def not_a_number(self) -> Rate:
        """The rate of answers with NaN."""
        return self._rate(self.values[NOT_A_NUMBER], self.requests, NAN_PAIRS)

    def slower_than(self, edge: int) -> Rate:
        """Return the rate of requests that took longer than EDGES_S[edge]."""
        slow, pairs = self.latencies[edge + 1], self.latency_pairs[edge + 1]
        return Rate(int(slow), int(self.latencies[0]), int(pairs))

    def _rate(self, hits: int, trials: int, pairs: int) -> Rate:
        return Rate(int(hits), int(trials), int(self.values[pairs]))


@dataclass(frozen=True)
class Counts:
    """The counts of all processes: a table (phase, side, column), candidate second.

    The columns of histograms are cumulative: they count what took longer.
    """

    table: Table

    def side(self, first: int, last: int, *, is_candidate: bool) -> ArmCounts:
        """Return what a side answered in the phases `first` to `last`."""
        last = min(last, PHASES - 1)
        row = self.table[min(first, last) : last + 1, int(is_candidate)].sum(axis=0)
        return ArmCounts(*np.split(row, (LATENCIES, LATENCY_PAIRS)))


def pooled(tables: list[Table]) -> Counts:
    """Return the sums of the tables of several processes.

    Slow or refused requests of several processes may be one group: after a pause of
    the machine, or in a batch of a shared model. Minkowski's inequality bounds their
    common pairs. Errors and NaN come from a model and its inputs, and count as apart.
    """
    if not tables:
        return Counts(np.zeros(SHAPE, np.int64))
    stacked = np.stack(tables)
    for part in (slice(LATENCIES, LATENCY_PAIRS), slice(LATENCY_PAIRS, COLUMNS)):
        stacked[..., part] = stacked[..., part][..., ::-1].cumsum(axis=-1)[..., ::-1]
    table = stacked.sum(axis=0)
    if len(tables) > 1:
        for part in (slice(FAILED_PAIRS, NAN_PAIRS), slice(LATENCY_PAIRS, COLUMNS)):
            roots = np.sqrt(stacked[..., part]).sum(axis=0)
            table[..., part] = np.rint(roots**2)
    return Counts(table)
