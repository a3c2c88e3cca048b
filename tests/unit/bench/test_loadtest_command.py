"""The command that a report says it was made by."""

import pytest

from bench.loadtest.__main__ import _make_command


@pytest.mark.parametrize(
    ("given", "command"),
    [
        pytest.param([], "make loadtest", id="plain"),
        pytest.param(
            ["--model", "big", "--price", "3.06"],
            "make loadtest MODEL=big PRICE=3.06",
            id="model and price",
        ),
        pytest.param(
            ["--quick", "--out", "there", "--users", "1,5"],
            'make loadtest ARGS="--quick --users 1,5"',
            id="others, without the folder",
        ),
    ],
)
def test_a_report_names_its_command(given, command):
    """What stands in the report is what makes such a report again."""
    assert _make_command(given) == command
