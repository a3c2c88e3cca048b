"""The default model: which it is, and that it stays."""

import pytest

from app.repository.default_model import DefaultModel
from app.run_dir.notes import Notes


@pytest.mark.parametrize(
    ("name", "names", "found"),
    [
        (None, ["a"], "a"),
        (None, ["a", "digits"], "digits"),
        (None, ["a", "b"], None),
        (None, [], "digits"),
        ("b", ["a"], "b"),
    ],
)
def test_default_is_the_set_the_only_one_or_digits(name, names, found):
    """Without a choice the demo model is missed."""
    assert DefaultModel(name, Notes()).among(names) == found


@pytest.mark.parametrize("later", [["a", "b"], ["a", "digits"], ["b"], []])
def test_kept_default_stays_when_models_come_or_go(later):
    """Clients of /predict keep their model, or get no answer."""
    default = DefaultModel(None, Notes())
    default.keep(["a"])
    default.keep(later)
    assert default.among(later) == "a"


@pytest.mark.parametrize("first", [[], ["a", "b"]])
def test_default_is_kept_once_there_is_one(first):
    """A server that starts without a choice makes it later."""
    default = DefaultModel(None, Notes())
    default.keep(first)
    assert default.among(["b"]) == "b"
    default.keep(["a"])
    assert default.among(["a", "b"]) == "a"


def test_other_processes_keep_the_choice_of_the_first(tmp_path):
    """A worker that starts when there are more models does not choose again."""
    DefaultModel(None, Notes(tmp_path / "default")).keep(["a"])
    other = DefaultModel(None, Notes(tmp_path / "default"))
    other.keep(["a", "digits"])
    assert other.among(["a", "digits"]) == "a"


def test_set_default_is_not_shown_to_others(tmp_path):
    """BASKET_DEFAULT_MODEL counts for each process that has it."""
    notes = Notes(tmp_path / "default")
    DefaultModel("b", notes).keep(["a"])
    assert notes.all() == []
