"""Promotions: a new version proves itself, and then gets the traffic step by step.

The loader's thread has versions compared, once in all processes.
"""

import logging
import time
from collections.abc import Callable, Collection

from app.engines.loading import error_summary
from app.errors import Abandoned, Unavailable
from app.promotion.record import Record, Recorded, Records
from app.repository.catalog import Catalog
from app.repository.rollouts.decisions import PROVEN, REFUSED, Decisions
from app.repository.rollouts.rollout_files import RolloutFiles
from app.repository.rollouts.standing import Standing, content_of, standing
from app.repository.rollouts.traffic_mover import Followed, TrafficMover
from app.repository.scan import ModelFolder
from app.repository.served import ServedModel
from app.settings.model_config import ModelConfig
from app.settings.promotion_config import PromotionConfig

_log = logging.getLogger(__name__)


class Promotions:
    """The promotions of all models in one process; used by the loader's thread.

    `mover` moves their traffic.
    """

    def __init__(
        self,
        catalog: Catalog,
        records: Records,
        rollouts: RolloutFiles,
        decisions: Decisions,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Store the parts; `clock` is one for all processes of the machine."""
        self._catalog = catalog
        self._records = records
        self._rollouts = rollouts
        self._decisions = decisions
        self._clock = clock
        # What passed its proof, by model, until its rollout has begun.
        self._passed: dict[str, Followed] = {}
        self.mover = TrafficMover(catalog, records, rollouts, decisions, clock)

    def standing(
        self,
        folder: ModelFolder,
        config: ModelConfig,
        loadable: Collection[int],
        available: Collection[int],
    ) -> Standing:
        """Return which version serves, and which one is to take over.

        Raises:
            OSError: a file of the run directory can't be read or written.
        """
        name, promotion = folder.name, config.promotion
        if promotion is None or config.traffic:
            self.remove(name)
            return Standing(max(loadable, default=None))
        record = self._records.of(name)
        found = standing(folder, record, loadable, available)
        if found.serving is None:
            self.mover.forget(name)
            return found
        self._end_left(folder, record, found, loadable)
        content = ""
        if found.candidate is not None:
            content = content_of(folder, found.candidate)
        followed = Followed(promotion, found.serving, found.candidate, content)
        self.mover.follow(name, followed)
        return found

    def _end_left(
        self,
        folder: ModelFolder,
        record: Record,
        found: Standing,
        loadable: Collection[int],
    ) -> None:
        """End the rollout of a version that is not to take over any more.

        Otherwise the time meanwhile would be that of its steps, once it is again. A
        version that this process can't load may be in its rollout in others, and so may
        one that it has not found yet.
        """
        name = folder.name
        begun = self._rollouts.current(name)
        if begun is None:
            return
        recorded = Recorded(begun.candidate, begun.content)
        is_over = recorded in (record.forced, record.proven)
        if not is_over and begun.candidate in (found.candidate, found.serving):
            return
        is_gone = begun.candidate not in folder.versions
        followed = self.mover.followed(name)
        was_followed = followed is not None and followed.candidate == begun.candidate
        if is_over or begun.candidate in loadable or (is_gone and was_followed):
            with self._rollouts.changing(name):
                if self._rollouts.current(name) == begun:
                    self._rollouts.end(name)

    def update(
        self, folder: ModelFolder, config: ModelConfig, standing: Standing
    ) -> None:
        """Record a first version as proven, and begin the rollout of a next one.

        It takes as long as a comparison of both.

        Raises:
            OSError: a file of the run directory can't be read or written.
        """
        name, promotion = folder.name, config.promotion
        versions = {
            each.version: each for each in self._catalog.models() if each.name == name
        }
        if promotion is None or config.traffic or standing.serving not in versions:
            return
        serving = versions[standing.serving]
        if standing.is_new:
            content = content_of(folder, serving.version)
            newer = {
                version: content_of(folder, version)
                for version in standing.refused
                if version > serving.version
            }
            self._records.prove(name, serving.version, content, newer)
        if standing.candidate not in versions:
            return
        candidate = versions[standing.candidate]
        content = content_of(folder, candidate.version)
        with self._rollouts.proving(name):
            # Another process, or the mover's thread, may have gone on meanwhile.
            if not self._is_decided(name, candidate.version, content):
                self._try(folder, promotion, serving, candidate, content)
        self.mover.start()

    def _is_decided(self, name: str, version: int, content: str) -> bool:
        """Return whether a version is in its rollout, or at the end of it."""
        if self._rollouts.of(name, version, content) is not None:
            return True
        record = self._records.of(name)
        refused = record.refused.get(version)
        is_refused = refused is not None and refused.content == content
        return is_refused or record.proven == Recorded(version, content)

    def remove(self, name: str) -> None:
        """End the rollout of a model without promotion; later it begins again.

        Raises:
            OSError: a file of the run directory can't be written.
        """
        followed = self.mover.forget(name)
        if followed is not None and followed.candidate is not None:
            with self._rollouts.changing(name):
                self._rollouts.end(name)

    def _try(
        self,
        folder: ModelFolder,
        config: PromotionConfig,
        serving: ServedModel,
        candidate: ServedModel,
        content: str,
    ) -> None:
        name, version = folder.name, candidate.version
        passed = Followed(config, serving.version, version, content)
        if self._passed.get(name) != passed:
            reason = self._refusal(folder, config, serving, candidate)
            if reason is None:
                return
            if reason:
                _log.error(
                    "model %s: version %s is not promoted: %s", name, version, reason
                )
                self._records.refuse(name, version, content, reason)
                self._decisions.count(name, version, REFUSED)
                return
            self._decisions.count(name, version, PROVEN)
            self._passed[name] = passed
        if self._is_decided(name, version, content):
            # It was sent back during its proof.
            del self._passed[name]
            return
        try:
            self._rollouts.begin(name, version, content, self._clock())
        except OSError as error:
            # Tried again at the next scan, without another proof.
            _log.error(
                "model %s: the rollout of version %s can't begin: %s",
                *(name, version, error.strerror),
            )
            return
        del self._passed[name]

    def _refusal(
        self,
        folder: ModelFolder,
        config: PromotionConfig,
        serving: ServedModel,
        candidate: ServedModel,
    ) -> str | None:
        """Return why a version is not promoted, "" if it may be; None: unknown yet."""
        name, version = folder.name, candidate.version
        try:
            return self._decisions.prove(folder, config, serving, candidate)
        except (Abandoned, Unavailable) as error:
            # Tried again at the next scan.
            _log.warning("model %s: %s can't be compared now: %s", name, version, error)
            return None
        except Exception as error:  # would come again with each scan
            _log.exception("model %s: the proof of version %s failed", name, version)
            return f"its proof failed: {type(error).__name__}: {error_summary(error)}"
