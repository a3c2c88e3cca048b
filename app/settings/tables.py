"""Tables of basket.toml whose keys are checked one by one."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from app.errors import SettingsError
from app.settings import checks

_Checks = Mapping[str, Callable[[object], Any]]


def read_table(
    name: str, table: Mapping[str, Any], known: _Checks, required: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the checked values of the table [name]; `known` has a check for each key.

    Raises:
        SettingsError: an unknown key, an invalid value, or a `required` key is missing;
            the text names the key.
    """
    found: dict[str, Any] = {}
    for key in dict.fromkeys((*table, *required)):
        value = table.get(key)
        if key not in known:
            raise SettingsError(
                f"basket.toml: [{name}] unknown key {checks.shown(key)}; known: "
                f"{', '.join(known)}"
            )
        try:
            found[key] = known[key](value)
        except ValueError as error:
            given = f"= {checks.shown(value)}" if key in table else "is missing"
            raise SettingsError(
                f"basket.toml: [{name}] {key} {given}: {error}"
            ) from error
    return found


def number(
    low: float, high: float, *, excludes_low: bool = False
) -> Callable[[object], float]:
    """Return a check for a number from `low`, or above it, to `high`."""
    start = "above" if excludes_low else "from"

    def check(value: object) -> float:
        # isinstance would accept a bool; the comparison refuses NaN, too.
        if (
            type(value) not in (int, float)
            or not low <= value <= high  # type: ignore[operator]
            or (excludes_low and value == low)
        ):
            raise ValueError(f"expected a number {start} {low:g} to {high:g}")
        return float(value)  # type: ignore[arg-type]

    return check
