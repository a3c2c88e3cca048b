"""Which version a request gets: the one it names, its label's, or by traffic.

The split by weight follows the client where the request says who it is. Weighted
rendezvous hashing (Thaler and Ravishankar, 1998; with weights: Schindelhauer and
Schomaker, 2005) needs no table, gives the same side in every process, and moves
only those clients that must move when a weight changes or a label goes.
"""

import bisect
import hashlib
import itertools
import math
from collections.abc import Collection, Mapping
from random import SystemRandom
from typing import NamedTuple

from app.errors import BadInput

# 48 bits: every share is exact as a double, and below 1.
_DIGEST_BYTES = 6
# The golden ratio's fraction: steps of it fill 0..1 evenly (Weyl's sequence), so
# that a split comes closer to its weights than by chance.
_GOLDEN = (math.sqrt(5) - 1) / 2


class Target(NamedTuple):
    """What a request says about the model it wants; None: not said.

    `client` is whoever must always land on the same side of a split.
    """

    name: str | None = None
    version: int | None = None
    label: str | None = None
    client: str | None = None


class Routes:
    """One model's labels and split."""

    def __init__(
        self,
        labels: Mapping[str, int] | None = None,
        traffic: Mapping[str, float] | None = None,
    ) -> None:
        """Store them; without traffic the newest version is for those that ask none."""
        self.labels = dict(labels or {})
        self.traffic = {name: w for name, w in (traffic or {}).items() if w > 0}
        self._places = itertools.count()
        # Of no generator that others share, as this runs in threads.
        self._start = SystemRandom().random()

    def is_like(self, other: "Routes") -> bool:
        """Whether the other has the same labels and split, wherever it stands in it."""
        return self.labels == other.labels and self.traffic == other.traffic

    def choose(self, target: Target, available: Collection[int]) -> int | None:
        """The version for a request: what it names, else one that is `available`.

        A label whose version is not available has no share of the traffic. None: no
        version is named, and none available.

        Raises:
            BadInput: no such label.
        """
        if target.label is not None:
            if target.label not in self.labels:
                raise BadInput(
                    f"Unrecognized servable version label: {target.label[:80]}"
                )
            return self.labels[target.label]
        if target.version is not None or not available:
            return target.version
        return self._split(target.client, available)

    def _split(self, client: str | None, available: Collection[int]) -> int:
        weights = self.traffic and {
            label: weight
            for label, weight in self.traffic.items()
            if self.labels[label] in available
        }
        if not weights:
            return max(available)
        label = self._next_label(weights) if client is None else _side(client, weights)
        return self.labels[label]

    def _next_label(self, weights: Mapping[str, float]) -> str:
        place = (self._start + next(self._places) * _GOLDEN) % 1
        ends = list(itertools.accumulate(weights.values()))
        return list(weights)[bisect.bisect_right(ends, place * ends[-1])]


def _side(client: str, weights: Mapping[str, float]) -> str:
    def score(label: str) -> float:
        key = f"{label}\0{client}".encode(errors="surrogateescape")
        digest = hashlib.blake2b(key, digest_size=_DIGEST_BYTES).digest()
        share = (int.from_bytes(digest) + 0.5) / (1 << 8 * _DIGEST_BYTES)
        return -weights[label] / math.log(share)

    return max(weights, key=score)
