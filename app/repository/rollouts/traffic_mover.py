"""Moves the traffic of all rollouts, in a thread of its own.

So a load that takes minutes delays neither a step nor a rollback. Each process reads
the same files and the same clock, and comes to the same result.
"""

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from app.promotion.record import Recorded, Records
from app.promotion.steps import Phase, phase_at
from app.repository.catalog import Catalog
from app.repository.rollouts.decisions import PROMOTED, SENT_BACK, Decisions
from app.repository.rollouts.rollout_files import Begun, RolloutFiles
from app.repository.routing import Rollout
from app.settings.promotion_config import PromotionConfig

_log = logging.getLogger(__name__)
_TICK_S = 0.25
# A single crash may have had another cause, such as a kill by hand.
_TOLERATED_CRASHES = 1


@dataclass(frozen=True)
class Followed:
    """A model's serving version, and the one that is to take over, if any.

    `content` is the digest of the latter's files.
    """

    config: PromotionConfig
    serving: int
    candidate: int | None
    content: str


class TrafficMover:
    """Has the catalog route each model's requests as its rollout says."""

    def __init__(
        self,
        catalog: Catalog,
        records: Records,
        rollouts: RolloutFiles,
        decisions: Decisions,
        clock: Callable[[], float],
    ) -> None:
        """Store the parts; `start` starts the thread."""
        self._catalog = catalog
        self._records = records
        self._rollouts = rollouts
        self._decisions = decisions
        self._clock = clock
        self._followed: dict[str, Followed] = {}
        # The last phase of each rollout that was logged.
        self._logged: dict[str, tuple[str, Phase]] = {}
        # Why rollouts ended, by key, until that is written: what versions were sent
        # back for, or "".
        self._ended: dict[str, str] = {}
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="rollouts", daemon=True)

    def start(self) -> None:
        """Start the thread, unless it runs or was closed."""
        with self._changed:
            if not self._thread.ident and not self._closed:
                self._thread.start()
            self._changed.notify_all()

    def follow(self, name: str, followed: Followed) -> None:
        """Route a model's requests from now on; at once, before a version is loaded.

        Raises:
            OSError: a file can't be read or written.
        """
        self._followed[name] = followed
        self._move(name, followed)

    def followed(self, name: str) -> Followed | None:
        """Return what was followed last of a model."""
        return self._followed.get(name)

    def forget(self, name: str) -> Followed | None:
        """Let a model's newest version serve; return what was followed."""
        with self._changed:
            followed = self._followed.pop(name, None)
            if followed is not None:
                self._catalog.set_rollout(name, None)
        return followed

    def tick(self) -> None:
        """Move the traffic of all rollouts to where it has to be now."""
        for name, followed in list(self._followed.items()):
            try:
                self._move(name, followed)
            except Exception:  # must not end the thread
                _log.exception("model %s: its traffic can't be moved", name)

    def close(self) -> None:
        """End the thread; the process is about to end as it should."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        with suppress(OSError):
            self._rollouts.leave()

    def _move(self, name: str, followed: Followed) -> None:
        """Route a model's traffic as its rollout says; end the rollout if it is time.

        Raises:
            OSError: a file can't be read or written.
        """
        rollout = Rollout(followed.serving)
        candidate, content = followed.candidate, followed.content
        if candidate is not None:
            begun = self._rollouts.of(name, candidate, content)
            if begun is not None:
                rollout = self._rollout_of(name, followed, begun)
            elif self._records.of(name).proven == Recorded(candidate, content):
                rollout = Rollout(candidate)
        with self._changed:
            # The loader may have turned to other versions meanwhile.
            if self._followed.get(name) is followed:
                self._catalog.set_rollout(name, rollout)

    def _rollout_of(self, name: str, followed: Followed, begun: Begun) -> Rollout:
        ended = self._ended.get(begun.key)
        if ended is not None:
            self._end(name, begun, ended)
            return Rollout(followed.serving if ended else begun.candidate)
        refusal = self._records.of(name).refused.get(begun.candidate)
        if refusal is not None and refusal.content == begun.content:
            self._end(name, begun, refusal.reason)
            return Rollout(followed.serving)
        phase = phase_at(self._clock() - begun.since_s, followed.config)
        if phase is None:
            self._end(name, begun, "")
            return Rollout(begun.candidate)
        self._rollouts.join(begun)
        reason = self._crashes(begun) or self._decisions.judge(
            begun.key, phase.number, followed.config
        )
        if reason:
            self._end(name, begun, reason)
            return Rollout(followed.serving)
        last_key, last_phase = self._logged.get(name, (begun.key, None))
        if (last_key, last_phase) != (begun.key, phase):
            self._logged[name] = begun.key, phase
            _log.info(
                "model %s: version %s gets %g %% of the traffic of version %s",
                *(name, begun.candidate, phase.percent, followed.serving),
            )
        if last_key != begun.key:
            # Not at its end: its last requests were still to be counted.
            self._decisions.forget(last_key)
        shares = begun.candidate, phase.percent, phase.number, begun.key
        return Rollout(followed.serving, *shares)

    def _crashes(self, begun: Begun) -> str:
        """Return why a rollout goes back if processes crashed in it."""
        crashes = self._rollouts.crashes(begun)
        if crashes <= _TOLERATED_CRASHES:
            return ""
        return (
            f"{crashes} processes ended while it got traffic, by a crash or for want "
            "of memory"
        )

    def _end(self, name: str, begun: Begun, reason: str) -> None:
        """End a rollout, with the reason why the version is sent back, in one process.

        Raises:
            OSError: the files can't be locked or read.
        """
        version, content = begun.candidate, begun.content
        with self._rollouts.changing(name):
            if self._rollouts.of(name, version, content) != begun:
                return
            if begun.key not in self._ended:
                self._ended[begun.key] = reason
                self._record_end(name, begun, reason)
            # Without space for it, the next look tries again.
            with suppress(OSError):
                self._rollouts.end(name)
                del self._ended[begun.key]

    def _record_end(self, name: str, begun: Begun, reason: str) -> None:
        version, content = begun.candidate, begun.content
        if reason:
            _log.error("model %s: version %s is sent back: %s", name, version, reason)
            self._records.refuse(name, version, content, reason)
            self._decisions.count(name, version, SENT_BACK)
        else:
            self._records.prove(name, version, content)
            self._decisions.count(name, version, PROMOTED)
            _log.info("model %s: version %s is promoted", name, version)

    def _run(self) -> None:
        while not self._closed:
            self.tick()
            with self._changed:
                followed = self._followed.values()
                is_idle = all(each.candidate is None for each in followed)
                self._changed.wait(None if is_idle else _TICK_S)
