"""OpenTelemetry's environment variables that decide whether requests are traced.

The SDK reads all others itself. It is imported only if they are.
"""

import atexit
import os
from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING

from app.errors import SettingsError

if TYPE_CHECKING:
    from app.tracing.spans import Spans

_EXPORTER = "OTEL_TRACES_EXPORTER"
_PROTOCOL = "OTEL_EXPORTER_OTLP_PROTOCOL"
_TRACES_PROTOCOL = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
_OVER_HTTP = "http/protobuf"
_PACKAGE = "opentelemetry.exporter.otlp.proto.http"


def are_traces_on(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether OTEL_TRACES_EXPORTER is otlp, and OTEL_SDK_DISABLED is not true.

    Raises:
        SettingsError: another exporter or protocol is set, or a package is missing.
    """
    exporter = environ.get(_EXPORTER, "").strip()
    is_disabled = environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    if exporter in ("", "none") or is_disabled:
        return False
    if exporter != "otlp":
        raise SettingsError(f"{_EXPORTER}={exporter!r}: expected otlp or none")
    for name in (_TRACES_PROTOCOL, _PROTOCOL):
        protocol = environ.get(name, "").strip()
        if protocol not in ("", _OVER_HTTP):
            raise SettingsError(f"{name}={protocol!r}: expected {_OVER_HTTP}")
    if not _is_installed():
        raise SettingsError(
            f"{_EXPORTER}=otlp: OpenTelemetry is not installed: pip install "
            "--require-hashes -r requirements/otel.txt"
        )
    return True


def _is_installed() -> bool:
    try:
        return find_spec(_PACKAGE) is not None
    except ModuleNotFoundError:  # of a package above it
        return False


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
