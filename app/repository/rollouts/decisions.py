"""Decisions on versions: by a comparison before they serve, by counts afterwards."""

import logging
import time
from collections.abc import Callable, Sequence

from app.batching.job import Job
from app.capture.ring import folder_of
from app.engines.base import Tensors
from app.errors import ModelBroken, ModelFailed
from app.promotion.comparison import compare
from app.promotion.evidence import Evidence
from app.promotion.judgment import problem
from app.promotion.replay_rows import replay_rows
from app.promotion.report_parts import table
from app.promotion.side import Side
from app.repository.scan import ModelFolder
from app.repository.served import ServedModel
from app.settings.promotion_config import PromotionConfig

# Results of a version: it passed its proof or did not; it has all traffic for good, or
# was sent back.
PROVEN, REFUSED, PROMOTED, SENT_BACK = "proven", "refused", "promoted", "sent_back"
_log = logging.getLogger(__name__)
# A batch waits so long for idle engines, then it runs among the clients'.
_IDLE_WITHIN_S, _LOOK_EVERY_S = 0.2, 0.002


class Decisions:
    """Decides on versions, and counts what was decided."""

    def __init__(
        self,
        evidence: Evidence,
        count: Callable[[str, int, str], None],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        """Store the counts of all processes; `count` counts results in the metrics.

        A test replaces the clock by which a proof waits for idle engines.
        """
        self._evidence = evidence
        self.count = count
        self._clock, self._sleep = clock, sleep

    def prove(
        self,
        folder: ModelFolder,
        config: PromotionConfig,
        serving: ServedModel,
        candidate: ServedModel,
    ) -> str:
        """Return why the candidate does not answer as the serving version does, or "".

        Its rows run while the engines are otherwise idle, or after 0.2 s each.

        Raises:
            Unavailable: a version can't run rows now.
        """
        name, settings = folder.name, serving.config.settings
        models = serving, candidate
        old, new = (
            _Queued(model, lambda: self._wait_for_idle(models)).side()
            for model in models
        )
        captured = settings.capture_dir and folder_of(settings.capture_dir, name)
        rows = replay_rows(old, config, settings, captured)
        _log.info(
            "model %s: version %s is compared with version %s: %s",
            *(name, candidate.version, serving.version, rows.described),
        )
        report = compare(old, new, rows, config)
        for line in table.lines(report):
            _log.info("model %s: %s", name, line)
        return report.refusal()

    def _wait_for_idle(self, models: Sequence[ServedModel]) -> None:
        give_up_at = self._clock() + _IDLE_WITHIN_S
        while (
            not all(each.runner.is_idle() for each in models)
            and self._clock() < give_up_at
        ):
            self._sleep(_LOOK_EVERY_S)

    def judge(self, key: str, phase: int, config: PromotionConfig) -> str:
        """Return what the counts of a rollout say against it in a phase, or ""."""
        return problem(self._evidence.read(key), phase, config)

    def forget(self, key: str) -> None:
        """Remove the counts of a rollout; other processes may have done so."""
        self._evidence.forget(key)


class _Queued:
    """Runs rows of one version through its own queue, as clients' rows run."""

    def __init__(self, model: ServedModel, wait_for_idle: Callable[[], None]) -> None:
        self._model = model
        self._wait_for_idle = wait_for_idle
        # Seconds in the engine of all runs, without the time in the queue.
        self._ran_s = 0.0

    def side(self) -> Side:
        """Return the version for a comparison, timed by its engine."""
        model = self._model
        return Side(
            *(model.version, model.signatures, model.user_code),
            *(self._run, lambda: self._ran_s),
        )

    def _run(self, inputs: Tensors, signature_name: str) -> Tensors:
        self._wait_for_idle()
        limit_s = self._model.config.settings.request_timeout_ms / 1000
        job = Job(inputs, time.monotonic() + limit_s, signature_name=signature_name)
        began_at = time.monotonic()
        try:
            self._model.runner.submit(job)
            job.wait()
            outputs = job.result()
        except ModelBroken as error:
            raise ModelFailed(str(error)) from error
        except Exception:
            # A failure takes time, too, however much of it in the queue.
            self._ran_s += time.monotonic() - began_at
            raise
        self._ran_s += job.finished_at - job.started_at
        return outputs
