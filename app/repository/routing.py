"""Routing of a request to a version: by number, by label, or by traffic weights.

Requests with a client id are split by weighted rendezvous hashing (Thaler and
Ravishankar, 1998; Schindelhauer and Schomaker, 2005). It needs no table, gives a client
the same version in every process, and moves as few clients as possible when a weight
changes.
"""

import bisect
import hashlib
import itertools
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from random import SystemRandom
from typing import NamedTuple

from app.errors import BadInput

# 48 bits are exact in a double.
_DIGEST_BYTES = 6
# Multiples of the golden ratio fill 0..1 evenly (Weyl's sequence), so that a split is
# closer to its weights than a random one.
_GOLDEN = (math.sqrt(5) - 1) / 2


class Target(NamedTuple):
    """The model and version that a request selects; None: not given.

    Requests with the same `client` are routed to the same version.
    """

    name: str | None = None
    version: int | None = None
    label: str | None = None
    client: str | None = None


class Rollout(NamedTuple):
    """The version that has the traffic, and one that gets some percent of it.

    `phase` numbers the parts of the rollout that `key` names; without a candidate
    nobody counts.
    """

    serving: int
    candidate: int | None = None
    percent: float = 0.0
    phase: int = 0
    key: str = ""

    def shares(self) -> dict[str, tuple[int, float]]:
        """Return versions and weights by the text of the version's number."""
        shares = {str(self.serving): (self.serving, 100 - self.percent)}
        if self.candidate is not None:
            shares[str(self.candidate)] = self.candidate, self.percent
        return shares


@dataclass
class Routes:
    """One model's labels and traffic split: versions and weights by label.

    Labels without a weight have no traffic; without weights the newest version serves.
    """

    labels: Mapping[str, int] = field(default_factory=dict)
    traffic: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Drop weights of 0, and begin the sequence of requests."""
        self.traffic = {name: w for name, w in self.traffic.items() if w > 0}
        self._shares = {
            label: (self.labels[label], weight)
            for label, weight in self.traffic.items()
        }
        self._requests = itertools.count()
        # Each process starts elsewhere in the sequence.
        self._start = SystemRandom().random()

    def choose(
        self,
        target: Target,
        available: Collection[int],
        rollout: Rollout | None = None,
    ) -> int | None:
        """Return the version that a request names, or else one of the available ones.

        A label without an available version gets no traffic. Where labels have no
        weights, a `rollout` has. None: the request names no version, and none is
        available.

        Raises:
            BadInput: the label is unknown.
        """
        if target.label is not None:
            if target.label not in self.labels:
                raise BadInput(
                    f"Unrecognized servable version label: {target.label[:80]}"
                )
            return self.labels[target.label]
        if target.version is not None or not available:
            return target.version
        return self._split(target.client, available, rollout)

    def shares(
        self, available: Collection[int], rollout: Rollout | None = None
    ) -> dict[int, float]:
        """Return which share of the requests that name no version each one gets."""
        weighted = self._weighted(available, rollout)
        total = sum(weight for _, weight in weighted.values())
        found = dict.fromkeys(available, 0.0)
        for version, weight in weighted.values():
            found[version] += weight / total
        if available and not weighted:
            found[max(available)] = 1.0
        return found

    def _weighted(
        self, available: Collection[int], rollout: Rollout | None
    ) -> dict[str, tuple[int, float]]:
        """Return available versions with a weight, by label; none: the newest."""
        shares = self._shares
        if not shares and rollout is not None:
            shares = rollout.shares()
        return {
            label: (version, weight)
            for label, (version, weight) in shares.items()
            if weight and version in available
        }

    def _split(
        self, client: str | None, available: Collection[int], rollout: Rollout | None
    ) -> int:
        shares = self._weighted(available, rollout)
        if not shares:
            return max(available)
        weights = {label: weight for label, (_, weight) in shares.items()}
        label = (
            self._next_label(weights) if client is None else _label_of(client, weights)
        )
        return shares[label][0]

    def _next_label(self, weights: Mapping[str, float]) -> str:
        share = (self._start + next(self._requests) * _GOLDEN) % 1
        ends = list(itertools.accumulate(weights.values()))
        return list(weights)[bisect.bisect_right(ends, share * ends[-1])]


def _label_of(client: str, weights: Mapping[str, float]) -> str:
    """Return the label with the highest score in weighted rendezvous hashing."""

    def score(label: str) -> float:
        key = f"{label}\0{client}".encode(errors="surrogateescape")
        digest = hashlib.blake2b(key, digest_size=_DIGEST_BYTES).digest()
        share = (int.from_bytes(digest) + 0.5) / (1 << 8 * _DIGEST_BYTES)
        return -weights[label] / math.log(share)

    return max(weights, key=score)
