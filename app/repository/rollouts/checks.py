"""The interface of what decides on versions."""

from typing import Protocol

from app.repository.scan import ModelFolder
from app.repository.served import ServedModel
from app.settings.promotion_config import PromotionConfig

# Results of a version: it passed its proof or did not; it has all traffic for good, or
# was sent back.
PROVEN, REFUSED, PROMOTED, SENT_BACK = "proven", "refused", "promoted", "sent_back"


class Checks(Protocol):
    """What decides on versions, and counts what was decided."""

    def prove(
        self,
        folder: ModelFolder,
        config: PromotionConfig,
        serving: ServedModel,
        candidate: ServedModel,
    ) -> str:
        """Return why a version is not promoted over the serving one, or ""."""
        ...

    def judge(self, key: str, phase: int, config: PromotionConfig) -> str:
        """Return why the rollout that `key` names goes back in a phase, or ""."""
        ...

    def forget(self, key: str) -> None:
        """Remove the counts of a rollout; other processes may have done so."""
        ...

    def count(self, name: str, version: int, result: str) -> None:
        """Count a result of a model's version."""
        ...
