"""Traffic splits that admins set, over those of basket.toml."""

import logging
from collections.abc import Mapping
from dataclasses import replace

from app.errors import BadInput, NotReady, SettingsError, UnknownModel
from app.repository.scan import ModelFolder
from app.repository.single_model import Scan
from app.run_dir.traffic_splits import TrafficSplits
from app.settings.model_config import check_traffic

_log = logging.getLogger(__name__)


class SplitScan:
    """A scan whose models have the traffic splits that were set."""

    def __init__(self, scan: Scan, splits: TrafficSplits) -> None:
        """Store the scan of the folder, and the splits."""
        self._scan = scan
        self._splits = splits

    def __call__(self) -> dict[str, ModelFolder]:
        """Return all models by name.

        Raises:
            OSError: the folder, or a split, can't be read.
        """
        return {name: self._split(folder) for name, folder in self._scan().items()}

    def find(self, name: str) -> ModelFolder:
        """Return a model, with the split of its basket.toml.

        Raises:
            UnknownModel: the model has no folder.
            NotReady: the folder of models can't be read.
        """
        try:
            found = self._scan()
        except OSError as error:
            raise NotReady(
                f"the folder of models can't be read now: {error.strerror}"
            ) from error
        if name not in found:
            raise UnknownModel(f"no model {name[:80]!r} in the repository")
        return found[name]

    def set(self, name: str, weights: Mapping[str, float]) -> None:
        """Set a model's weights by label; none: as basket.toml says.

        Raises:
            UnknownModel: the model has no folder.
            NotReady: its basket.toml, or the folder of models, can't be read.
            BadInput: a label is unknown, or a weight is none.
        """
        config = self.find(name).config
        if isinstance(config, SettingsError):
            raise NotReady(f"model {name!r}: {config}")
        try:
            check_traffic(weights, config.labels)
        except ValueError as error:
            raise BadInput(f"traffic: {error}") from error
        self._splits.set(name, weights or config.traffic, config.traffic)
        split = ", ".join(f"{label} {weight:g}" for label, weight in weights.items())
        _log.info("model %s: traffic %s", name, split or "as basket.toml says")

    def _split(self, folder: ModelFolder) -> ModelFolder:
        config = folder.config
        if isinstance(config, SettingsError):
            return folder
        weights = self._splits.of(folder.name, config.traffic)
        # A label may be gone since.
        if weights == config.traffic or not weights.keys() <= config.labels.keys():
            return folder
        return replace(folder, config=replace(config, traffic=weights))
