"""Sequential tests of a rate: they may be looked at after each request.

The evidence against "the rate is at most p" is the mean likelihood ratio of rates
above p to p itself. While the rate is p or less, it is a nonnegative supermartingale
that starts at 1, so the probability that it ever reaches 1 / alpha is at most alpha:

    J. Ville, "Etude critique de la notion de collectif", 1939 (the inequality);
    H. Robbins, "Statistical methods related to the law of the iterated logarithm",
    Annals of Mathematical Statistics 41, 1970 (mixtures of likelihood ratios);
    G. Shafer, "Testing by betting", Journal of the Royal Statistical Society A 184,
    2021 (the same as evidence).

It depends on the counts alone, so that processes with the same counts agree. Counts
need not be whole: a^y b^(1-y) <= y a + (1-y) b, so a value y between 0 and 1 gives no
more evidence than its chance of a 1. All evidence here is a natural logarithm.
"""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# The alternatives, as distances from p in log odds: from a fourth more to almost all.
_DISTANCES = 0.25 * np.sqrt(2) ** np.arange(12)
# Rates nearer to 0 or 1 than this count as this.
_LEAST = 1e-6
# Rates of the other side that are tried in a comparison.
_TRIED = 300


def against_at_most(
    hits: npt.ArrayLike, trials: npt.ArrayLike, rate: npt.ArrayLike
) -> Floats:
    """Return the log evidence against "the rate of hits is at most `rate`".

    The arguments broadcast to the shape of what is returned.
    """
    return _evidence(hits, trials, rate, _DISTANCES)


def against_at_least(
    hits: npt.ArrayLike, trials: npt.ArrayLike, rate: npt.ArrayLike
) -> Floats:
    """Return the log evidence against "the rate of hits is at least `rate`".

    The arguments broadcast to the shape of what is returned.
    """
    return _evidence(hits, trials, rate, -_DISTANCES)


def against_no_worse(
    own: tuple[float, float], other: tuple[float, float], floor: float, factor: float
) -> float:
    """Return the log evidence against "own rate <= max(floor, factor * other rate)".

    `own` and `other` are hits and trials of the two sides; without trials the other
    rate counts as 0. Above 0, the evidence is the least of two, as both must hold.

    Whatever the other rate is, it lies between two neighbors of those tried: the
    product of the evidence that it is not above the lower one, and of the evidence
    that the own rate is above `factor` times the higher one, is a supermartingale,
    and the least of the products is no larger.
    """
    evidence = float(against_at_most(*own, floor))
    if evidence <= 0 or not other[1] or floor >= factor:
        return evidence
    tried = 1 / (1 + np.exp(-np.linspace(_log_odds(floor / factor), 14, _TRIED)))
    higher = np.append(tried[1:], 1.0)
    products = against_at_most(*own, np.minimum(factor * higher, 1.0))
    products += against_at_least(*other, tried)
    return min(evidence, float(products.min()))


def _evidence(
    hits: npt.ArrayLike, trials: npt.ArrayLike, rate: npt.ArrayLike, distances: Floats
) -> Floats:
    # The last axis is that of the alternatives.
    hits, trials = (
        np.asarray(hits)[..., np.newaxis],
        np.asarray(trials)[..., np.newaxis],
    )
    null = _log_odds(rate)[..., np.newaxis]
    other = null + distances
    # log p = -log(1 + exp(-l)), l being its log odds, and log(1 - p) = log p - l.
    of_hit = np.logaddexp(0, -null) - np.logaddexp(0, -other)
    ratios = trials * of_hit - (trials - hits) * distances
    mean: Floats = np.logaddexp.reduce(ratios, axis=-1) - np.log(len(distances))
    return mean


def _log_odds(rate: npt.ArrayLike) -> Floats:
    rate = np.clip(rate, _LEAST, 1 - _LEAST)
    odds: Floats = np.asarray(np.log(rate / (1 - rate)))
    return odds
