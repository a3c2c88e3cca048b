"""`models promote` and `models send-back`: change the record that servers read."""

import pytest

from app.promotion.record import Records
from tests.support.commands import run_models


@pytest.fixture(name="promote")
def _promote(tmp_path):
    """Run the command on a model with versions 1 to 3, of which 2 was refused."""
    models, root = tmp_path / "models", tmp_path / "captured"
    for version in (1, 2, 3):
        (models / "m" / str(version)).mkdir(parents=True)
        (models / "m" / str(version) / "weights").write_text(str(version))
    (models / "m" / "basket.toml").write_text("[promotion]")
    records = Records(root)
    records.prove("m", 1, "content of 1")
    records.refuse("m", 2, "content of 2", "is worse")

    def run(*args, capture_dir=root, command="promote"):
        return run_models(models, command, *args, capture_dir=capture_dir)

    run.records, run.root, run.models = records, root, models
    return run


def test_refused_version_is_tried_again(promote):
    """The command says why it was refused."""
    output = promote("m", "2")[1]
    assert "version 2 has to prove itself again" in output
    assert "is worse" in output
    record = promote.records.of("m")
    assert record.refused == {}
    assert record.proven.version == 1


def test_forced_version_is_recorded_and_newer_ones_are_refused(promote):
    """What was proven serves until the forced version is loaded."""
    output = promote("m", "2", "--force")[1]
    assert "version 2 takes over without a proof" in output
    assert "version 3 is refused from now on" in output
    record = promote.records.of("m")
    assert record.forced.version == 2
    assert record.refused.keys() == {3}
    assert record.refused[3].reason == "version 2 was promoted by force"
    assert record.proven.version == 1


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("m", "1"), "version 1 of 'm' was not refused"),
        (("m", "7"), "has no version 7; it has: 1, 2, 3"),
        (("x", "1"), "no model 'x'"),
    ],
)
def test_version_that_can_not_be_promoted_is_named(promote, args, text):
    """Nothing is changed."""
    before = promote.records.of("m")
    code, output = promote(*args)
    assert code == 1
    assert text in output
    assert promote.records.of("m") == before


def test_model_without_promotion_is_refused(promote):
    """Its newest version serves by itself."""
    (promote.models / "m" / "basket.toml").write_text("")
    assert "has no [promotion]" in promote("m", "2")[1]


def test_missing_capture_folder_is_named(promote):
    """The server could not read what the command writes."""
    assert "needs BASKET_CAPTURE_DIR" in promote("m", "2", capture_dir=None)[1]


def test_record_that_can_not_be_written_is_an_error(promote):
    """A server would not follow."""
    folder = promote.root / ".promotions"
    folder.rename(promote.root / "away")
    folder.touch()
    code, output = promote("m", "2", "--force")
    assert code == 1
    assert "BASKET_CAPTURE_DIR=" in output


def test_version_that_is_sent_back_is_refused_with_the_reason(promote):
    """The version that was proven serves on."""
    output = promote("m", "3", "--reason", "labels", command="send-back")[1]
    assert output == "m: version 3 is sent back\n"
    record = promote.records.of("m")
    assert record.refused[3].reason == "it was sent back by hand: labels"
    assert record.proven.version == 1


def test_version_can_not_be_sent_back_where_none_was_proven(tmp_path):
    """There would be none to serve."""
    models = tmp_path / "models"
    (models / "m" / "1").mkdir(parents=True)
    (models / "m" / "basket.toml").write_text("[promotion]")
    code, output = run_models(models, "send-back", "m", 1, capture_dir=tmp_path / "c")
    assert code == 1
    assert "no version of 'm' was proven yet" in output
