"""Numbers that commands take."""

import click
import pytest

from app.commands import make
from app.commands.finite import FiniteRange
from tests.support.commands import run_models


@pytest.mark.parametrize("text", ["nan", "-nan", "inf", "-inf", "1e999", "0.4", "x"])
def test_only_numbers_are_numbers(text):
    """What is not finite, below the least or no number at all is refused."""
    with pytest.raises(click.BadParameter):
        FiniteRange(min=0.5).convert(text, None, None)


@pytest.mark.parametrize("text", ["0.5", "1e300"])
def test_finite_numbers_are_taken(text):
    """A number from the least on is itself."""
    assert FiniteRange(min=0.5).convert(text, None, None) == float(text)


@pytest.mark.parametrize("number", ["nan", "inf"])
@pytest.mark.parametrize(
    "option",
    [
        *("make big --latency-ms", "make big --max-gib", "make big --tolerance"),
        *("check a --tolerance", "quantize a --agreement"),
    ],
)
def test_each_command_wants_finite_numbers(tmp_path, monkeypatch, option, number):
    """NaN and inf are wrong calls, told with the option before anything is done."""
    monkeypatch.delattr(make, "import_module")
    status, output = run_models(tmp_path, *option.split(), number)
    assert status == 2
    assert f"Invalid value for '{option.split()[-1]}'" in output


@pytest.mark.parametrize("option", ["--latency-ms", "--max-gib"])
def test_numbers_beyond_all_measure_are_refused(tmp_path, monkeypatch, option):
    """A time or a size that overflows when it is counted in other units is refused."""
    monkeypatch.delattr(make, "import_module")
    status, output = run_models(tmp_path, "make", "big", option, "1e308")
    assert status == 2
    assert f"Invalid value for '{option}'" in output
