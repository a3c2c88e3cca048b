"""The variables that turn traces on."""

import pytest

from app.errors import SettingsError
from app.tracing import environment
from app.tracing.environment import are_traces_on
from testing.server import ROOT

ON = {"OTEL_TRACES_EXPORTER": "otlp"}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}, False),
        ({"OTEL_TRACES_EXPORTER": "none"}, False),
        ({**ON, "OTEL_SDK_DISABLED": "true"}, False),
        (ON, True),
        ({**ON, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, True),
    ],
)
def test_traces_are_on_where_the_exporter_is_otlp(environ, expected, monkeypatch):
    """An endpoint alone turns nothing on, as other programs may share the variables."""
    monkeypatch.setattr(environment, "find_spec", lambda _: "found")
    assert are_traces_on(environ) is expected


@pytest.mark.parametrize(
    "variables",
    [
        {"OTEL_TRACES_EXPORTER": "console"},
        {**ON, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
        {**ON, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc"},
    ],
)
def test_unsupported_values_are_refused(variables):
    """The text names the variable and its value."""
    name, value = list(variables.items())[-1]
    with pytest.raises(SettingsError, match=f"^{name}='{value}': expected "):
        are_traces_on(variables)


def _of_nothing(name):
    raise ModuleNotFoundError(name)


@pytest.mark.parametrize("find_spec", [_of_nothing, lambda _: None])
def test_missing_packages_are_refused_with_the_command(monkeypatch, find_spec):
    """The text has the command that installs the packages."""
    monkeypatch.setattr(environment, "find_spec", find_spec)
    with pytest.raises(SettingsError, match=r"-r requirements/otel\.txt$"):
        are_traces_on(ON)
    assert (ROOT / "requirements" / "otel.txt").is_file()
