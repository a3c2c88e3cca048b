"""Traffic splits that all processes of a server share."""

import pytest

from app.run_dir.traffic_splits import TrafficSplits


@pytest.mark.parametrize("in_file", [True, False])
def test_split_is_seen_by_all_until_the_configured_one_changes(tmp_path, in_file):
    """Other objects of the same folder see it; another basket.toml ends it."""
    folder = tmp_path / "traffic" if in_file else None
    splits = TrafficSplits(folder)
    configured = {"stable": 100}
    assert splits.of("m", configured) == configured
    splits.set("m", {"canary": 1}, configured)
    reader = TrafficSplits(folder) if in_file else splits
    assert reader.of("m", configured) == {"canary": 1}
    assert reader.of("other", configured) == configured
    assert reader.of("m", {"stable": 90, "canary": 10}) == {"stable": 90, "canary": 10}


@pytest.mark.parametrize("in_file", [True, False])
def test_split_that_has_ended_does_not_come_back(tmp_path, in_file):
    """basket.toml that returns to what it was has its own split."""
    splits = TrafficSplits(tmp_path if in_file else None)
    first, second = {"stable": 90, "canary": 10}, {"stable": 50, "canary": 50}
    splits.set("m", {"canary": 100}, first)
    assert splits.of("m", first) == {"canary": 100}
    for _ in range(2):
        assert splits.of("m", second) == second
    assert splits.of("m", first) == first


def test_split_set_after_a_process_read_basket_toml_is_kept(tmp_path):
    """A process that has seen the old basket.toml does not end the new one's split."""
    slow, quick = TrafficSplits(tmp_path), TrafficSplits(tmp_path)
    old, new = {"stable": 100}, {"stable": 90, "canary": 10}
    quick.set("m", {"canary": 100}, new)
    assert slow.of("m", old) == old
    assert slow.of("m", new) == {"canary": 100}
    assert slow.of("m", old) == old
    assert quick.of("m", new) == {"canary": 100}


def test_name_may_hold_any_characters(tmp_path):
    """A model's name is not a path here."""
    splits = TrafficSplits(tmp_path)
    splits.set("../a b%", {"x": 1}, {})
    assert splits.of("../a b%", {}) == {"x": 1}
    assert [each.parent for each in tmp_path.iterdir()] == [tmp_path]


def test_set_leaves_one_file_for_a_model(tmp_path):
    """What is written aside takes the place of the file."""
    for weight in (1, 2):
        TrafficSplits(tmp_path).set("m", {"x": weight}, {})
    assert [each.name for each in tmp_path.iterdir()] == ["m.json"]
    assert TrafficSplits(tmp_path).of("m", {}) == {"x": 2}
