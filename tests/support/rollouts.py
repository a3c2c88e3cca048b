"""A loader whose promotions are decided, and timed, by a test."""

import time
from collections.abc import Callable, Mapping

from app import run_dir
from app.promotion.record import Records
from app.repository.catalog import Catalog
from app.repository.loader import Loader
from app.repository.loading.loads import Loads
from app.repository.loading.opener import Opener
from app.repository.loading.quarantine import Quarantine
from app.repository.reconciler import Reconciler
from app.repository.rollouts.promotions import Promotions
from app.repository.rollouts.rollout_files import RolloutFiles
from app.repository.scan import ModelFolder
from app.repository.served import ServedModel
from app.settings import Settings
from app.settings.promotion_config import PromotionConfig


class Decided:
    """Decisions whose results a test sets: `refusals` by version, and `problem`."""

    def __init__(self, refusals: Mapping[int, str] | None = None) -> None:
        self.refusals = dict(refusals or {})
        self.problem = ""
        self.proofs: list[tuple[int, int]] = []
        self.judged: list[tuple[str, int]] = []
        self.forgotten: list[str] = []
        self.counted: list[tuple[str, int, str]] = []

    def prove(
        self,
        folder: ModelFolder,
        config: PromotionConfig,
        serving: ServedModel,
        candidate: ServedModel,
    ) -> str:
        self.proofs.append((serving.version, candidate.version))
        return self.refusals.get(candidate.version, "")

    def judge(self, key: str, phase: int, config: PromotionConfig) -> str:
        self.judged.append((key, phase))
        return self.problem

    def forget(self, key: str) -> None:
        self.forgotten.append(key)

    def count(self, name: str, version: int, result: str) -> None:
        self.counted.append((name, version, result))


def promotions_of(
    settings: Settings,
    catalog: Catalog,
    checks: Decided | None = None,
    rollouts: RolloutFiles | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Promotions:
    """Return promotions, whose state is in memory unless `rollouts` are given."""
    rollouts = rollouts or RolloutFiles(None)
    records = Records(settings.capture_dir)
    return Promotions(catalog, records, rollouts, checks or Decided(), clock)


def loader_of(
    settings: Settings,
    catalog: Catalog,
    opener: Opener,
    unloaded: run_dir.Notes | None = None,
    promotions: Promotions | None = None,
) -> Loader:
    """Return a Loader that scans only when told."""
    loads = Loads(opener, Quarantine(run_dir.Notes()))
    promotions = promotions or promotions_of(settings, catalog)
    drain_s = settings.request_timeout_ms / 1000
    reconciler = Reconciler(catalog, loads, promotions, drain_s)
    notes = unloaded or run_dir.Notes()
    return Loader(settings, catalog, reconciler, notes, scan_every_s=None)
