"""Number options of the commands."""

import click
import pytest

from app.commands.new_models import make
from app.commands.options import FiniteRange
from tests.support.commands import run_models


@pytest.mark.parametrize("text", ["nan", "-nan", "inf", "-inf", "1e999", "0.4", "x"])
def test_non_finite_or_out_of_range_number_is_refused(text):
    """NaN, infinities, numbers below the minimum and other text are bad parameters."""
    with pytest.raises(click.BadParameter):
        FiniteRange(min=0.5).convert(text, None, None)


@pytest.mark.parametrize("text", ["0.5", "1e300"])
def test_finite_number_in_range_is_accepted(text):
    """A number at or above the minimum is returned."""
    assert FiniteRange(min=0.5).convert(text, None, None) == float(text)


@pytest.mark.parametrize("number", ["nan", "inf"])
@pytest.mark.parametrize(
    "option",
    [
        *("make big --latency-ms", "make big --max-gib", "make big --tolerance"),
        *("check a --tolerance", "quantize a --agreement"),
    ],
)
def test_each_number_option_refuses_nan_and_inf(tmp_path, monkeypatch, option, number):
    """NaN and inf are usage errors that name the option, before any work is done."""
    monkeypatch.delattr(make, "import_module")
    status, output = run_models(tmp_path, *option.split(), number)
    assert status == 2
    assert f"Invalid value for '{option.split()[-1]}'" in output


@pytest.mark.parametrize("option", ["--latency-ms", "--max-gib"])
def test_number_that_overflows_in_other_units_is_refused(tmp_path, monkeypatch, option):
    """A time or a size that overflows when it is converted is a usage error."""
    monkeypatch.delattr(make, "import_module")
    status, output = run_models(tmp_path, "make", "big", option, "1e308")
    assert status == 2
    assert f"Invalid value for '{option}'" in output
