"""The start of what makes spans."""

import atexit
from typing import TYPE_CHECKING

from app.errors import SettingsError
from app.tracing.environment import are_traces_on

if TYPE_CHECKING:
    from app.tracing.spans import Spans


def started_spans() -> "Spans | None":
    """Return what makes spans if OpenTelemetry's variables turn traces on.

    Raises:
        SettingsError: one of them can't be followed.
    """
    if not are_traces_on():
        return None
    try:
        # Optional packages.
        from app.tracing.spans import Spans  # noqa: PLC0415

        spans = Spans()
    except ValueError as error:
        raise SettingsError(
            f"OpenTelemetry refuses an OTEL_ variable: {error}"
        ) from error
    # After the last request: what is registered later runs earlier.
    atexit.register(spans.close)
    return spans
