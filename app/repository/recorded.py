"""What is recorded of a model's answered requests, as its basket.toml says now."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

from app.settings.model_config import CaptureConfig, ModelConfig
from app.settings.promotion_config import ShadowConfig

if TYPE_CHECKING:
    from app.repository.served import ServedModel

_SHADOW = "shadow in [promotion] of basket.toml has no effect"


class Recorded(NamedTuple):
    """Which requests are captured, and which are copied to another version, if any."""

    capture: CaptureConfig | None = None
    shadow: ShadowConfig | None = None

    def to_json(self) -> list[Any]:
        """Return JSON values, for `from_json`."""
        return [each and asdict(each) for each in self]

    @classmethod
    def from_json(cls, values: Sequence[Any]) -> "Recorded":
        """Return what `to_json` turned into these values."""
        capture, shadow = values
        return cls(
            capture and CaptureConfig(**capture), shadow and ShadowConfig(**shadow)
        )


NOTHING = Recorded()


def recorded(config: ModelConfig) -> Recorded:
    """Return what is recorded of a model's requests."""
    settings, shadow = config.settings, None
    if config.promotion is not None and settings.batching:
        shadow = config.promotion.shadow_config()
    return Recorded(config.capture if settings.capture_dir else None, shadow)


def problems(
    name: str, config: ModelConfig, versions: Iterable["ServedModel"]
) -> Iterator[str]:
    """Yield why a model's requests are not recorded; `versions` are all that serve."""
    if config.capture and config.settings.capture_dir is None:
        yield "[capture] in basket.toml has no effect: BASKET_CAPTURE_DIR is not set"
    if config.promotion is None or config.promotion.shadow_config() is None:
        return
    if not config.settings.batching:
        yield f"{_SHADOW}: BASKET_BATCHING is off"
    for served in versions:
        if served.name == name and not served.has_tensors:
            yield (
                f"{_SHADOW} on version {served.version}: its service.py takes "
                "instances as they are, and only tensors are copied"
            )
