"""Traffic splits over those of basket.toml."""

import pytest

from app.errors import BadInput, NotReady, SettingsError, UnknownModel
from app.repository.scan import ModelFolder
from app.repository.traffic import SplitScan
from app.run_dir.traffic_splits import TrafficSplits
from app.settings import Settings
from app.settings.model_config import ModelConfig

LABELS = {"stable": 1, "canary": 2}


class Folders:
    """A scan of the model m, with these labels and weights."""

    def __init__(self, labels=LABELS, traffic=()):
        self.config = ModelConfig(Settings(), labels, dict(traffic))
        self.scan = SplitScan(self, TrafficSplits())

    def __call__(self):
        return {"m": ModelFolder("m", {}, self.config)}

    def traffic(self):
        return self.scan()["m"].config.traffic


def test_split_takes_the_place_of_that_in_basket_toml():
    """No weights bring the configured ones back."""
    folders = Folders(traffic={"stable": 100})
    folders.scan.set("m", {"stable": 90, "canary": 10.5})
    assert folders.traffic() == {"stable": 90, "canary": 10.5}
    folders.scan.set("m", {})
    assert folders.traffic() == {"stable": 100}


def test_another_split_in_basket_toml_wins():
    """The operator's latest word counts."""
    folders = Folders(traffic={"stable": 100})
    folders.scan.set("m", {"canary": 100})
    folders.config = ModelConfig(Settings(), LABELS, {"stable": 1, "canary": 1})
    assert folders.traffic() == {"stable": 1, "canary": 1}


def test_split_of_a_label_that_is_gone_is_ignored():
    """Requests follow basket.toml until the label is there again."""
    folders = Folders()
    folders.scan.set("m", {"canary": 100})
    folders.config = ModelConfig(Settings(), {"stable": 1}, {})
    assert folders.traffic() == {}
    folders.config = ModelConfig(Settings(), LABELS, {})
    assert folders.traffic() == {"canary": 100}


@pytest.mark.parametrize(
    ("weights", "text"),
    [
        ({"nobody": 1}, "traffic: nobody: there is no such label"),
        ({"stable": -1}, "traffic: stable = -1: expected a weight, 0 or more"),
        ({"stable": "1"}, "traffic: stable = '1': expected a weight"),
        ({"stable": 0}, "traffic: has no weight above 0"),
    ],
)
def test_malformed_split_is_bad_input(weights, text):
    """The error names the label, and the split stays."""
    folders = Folders(traffic={"stable": 100})
    with pytest.raises(BadInput) as raised:
        folders.scan.set("m", weights)
    assert str(raised.value).startswith(text)
    assert folders.traffic() == {"stable": 100}


def test_split_needs_a_model_whose_configuration_is_read():
    """Without labels there is nothing to split."""
    folders = Folders()
    with pytest.raises(UnknownModel):
        folders.scan.set("other", {})
    folders.config = SettingsError("basket.toml: broken")
    with pytest.raises(NotReady, match="broken"):
        folders.scan.set("m", {})
    assert isinstance(folders.scan()["m"].config, SettingsError)
