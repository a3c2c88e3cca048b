"""For how many rows the JSON of two versions agrees."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from app.promotion.measures.agreement import TOLERANCE, Agreement

_NAME = "predictions"


class _Same(NamedTuple):
    """Whether two values agree, how far numbers are apart, whether one is missing."""

    agrees: bool
    difference: float = 0.0
    is_lost: bool = False


_EQUAL, _UNEQUAL = _Same(agrees=True), _Same(agrees=False)


class JsonComparison:
    """Compares the predictions of two versions, which are JSON values, row by row.

    A list of scores, which are floats, agrees in its top class; another float within 1
    % of the larger one, or within `max_difference`; all else is equal. JSON has null
    for NaN and infinity. With `ignore_floats`, floats agree with floats.
    """

    def __init__(self, max_difference: float | None, *, ignore_floats: bool) -> None:
        """Store the conditions."""
        self._max_difference = max_difference
        self._ignores_floats = ignore_floats
        self._found: list[_Same] = []
        self._has_floats = False

    def add(self, expected: Sequence[Any], actual: Sequence[Any]) -> None:
        """Compare the predictions for some rows."""
        for one, other in zip(expected, actual, strict=True):
            self._found.append(self._compared(one, other))

    def result(self) -> Agreement:
        """Return how far they agree; there is at least one."""
        measure = "equal JSON"
        if self._ignores_floats:
            measure = "equal JSON, apart from floats,"
        elif self._has_floats:
            measure = "the same JSON, with floats as near,"
        return Agreement(
            _NAME,
            measure,
            agrees=np.array([each.agrees for each in self._found]),
            differences=np.array([each.difference for each in self._found]),
            lost=np.array([each.is_lost for each in self._found]),
            is_float=self._has_floats and not self._ignores_floats,
        )

    def _compared(self, one: Any, other: Any) -> _Same:
        if isinstance(one, list) and isinstance(other, list):
            return self._lists(one, other)
        if isinstance(one, dict) and isinstance(other, dict):
            if one.keys() != other.keys():
                return _UNEQUAL
            return _all([self._compared(one[key], other[key]) for key in one])
        if _is_number(one) and _is_number(other) and float in (type(one), type(other)):
            return self._floats(one, other)
        if _is_number(one) and other is None:
            return _Same(agrees=False, difference=math.inf, is_lost=True)
        # Where the serving version has NaN, the new one may have a number.
        is_better = one is None and isinstance(other, float)
        is_equal = type(one) is type(other) and one == other
        return _EQUAL if is_better or is_equal else _UNEQUAL

    def _floats(self, one: float, other: float) -> _Same:
        self._has_floats = True
        apart = abs(one - other)
        most = self._max_difference
        if most is None:
            most = TOLERANCE * max(abs(one), abs(other))
        if self._ignores_floats:
            return _EQUAL
        return _Same(agrees=apart <= most, difference=apart)

    def _lists(self, one: list[Any], other: list[Any]) -> _Same:
        if len(one) != len(other):
            return _UNEQUAL
        found = _all([self._compared(*pair) for pair in zip(one, other, strict=True)])
        if self._max_difference is not None or len(one) == 1 or found.is_lost:
            return found
        values = [*one, *other]
        if all(map(_is_number, values)) and any(isinstance(v, float) for v in values):
            is_same = one.index(max(one)) == other.index(max(other))
            return found._replace(agrees=is_same or self._ignores_floats)
        return found


def _all(found: Sequence[_Same]) -> _Same:
    return _Same(
        all(each.agrees for each in found),
        max((each.difference for each in found), default=0.0),
        any(each.is_lost for each in found),
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
