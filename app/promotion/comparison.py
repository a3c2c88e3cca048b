"""Compares a new version with the serving one, on the same rows."""

from collections.abc import Callable, Sequence
from itertools import accumulate

import numpy as np

from app.promotion.measures.answers import Answers, fits
from app.promotion.measures.pairs import Pair, Pairs
from app.promotion.measures.signature_changes import signature_changes
from app.promotion.measures.tally import Tally
from app.promotion.measures.timing import TimedBatches, measure
from app.promotion.replay_rows import ReplayRows
from app.promotion.report import Report
from app.promotion.side import RowGroup, Side
from app.settings.promotion_config import PromotionConfig

# Seconds that both versions take in all, but for the batch that runs then.
LIMIT_S = 120.0
# The shares of them by the end of each part.
_ONE_ROW, _REPLAY = 0.25, 0.6
# Rows that are tried, until both versions answer one.
_TRIED = 8


def compare(
    serving: Side,
    candidate: Side,
    rows: ReplayRows,
    config: PromotionConfig,
    *,
    progress: Callable[[str], None] = lambda _: None,
    limit_s: float = LIMIT_S,
) -> Report:
    """Return how far the new version answers as the serving one, and as fast.

    `progress` gets a line for each part of the work, and may raise to end it. After
    `limit_s` seconds, in which both versions ran, the report is of the rows so far. A
    call of `run` that never returns is not ended.

    Raises:
        Unavailable: a version's `run` raised it: rows can't be run now.
        Abandoned: likewise.
    """
    pairs = Pairs(serving, candidate, rows.batch_sizes)
    return _Comparison(pairs, rows, config, progress, limit_s).report()


class _Comparison:
    """One run of `compare`."""

    def __init__(
        self,
        pairs: Pairs,
        rows: ReplayRows,
        config: PromotionConfig,
        progress: Callable[[str], None],
        limit_s: float,
    ) -> None:
        self._pairs = pairs
        self._rows = rows
        self._config = config
        self._progress = progress
        self._limit_s = limit_s
        self._tally = Tally(config.max_difference)
        self._times: list[TimedBatches] = []
        starts = [0, *accumulate(map(len, rows.groups))]
        # Captured rows are those behind preprocess.
        serving, candidate = pairs.serving, pairs.candidate
        is_same_kind = serving.reads_instances() == candidate.reads_instances()
        # Groups that the new version takes, and the number of the first row of each.
        self._groups = [
            (group, start)
            for group, start in zip(rows.groups, starts, strict=False)
            if is_same_kind and fits(pairs.candidate, group)
        ]

    def report(self) -> Report:
        """Run all parts."""
        self._run()
        serving, candidate = self._pairs.serving, self._pairs.candidate
        failures = self._tally.failures()
        return Report(
            versions=(serving.version, candidate.version),
            config=self._config,
            rows=self._rows,
            signature_changes=signature_changes(serving, candidate),
            fitting_rows=sum(len(group) for group, _ in self._groups),
            ran_rows=self._tally.rows,
            compared=self._tally.compared(),
            serving_failures=failures[0],
            candidate_failures=failures[1],
            times=self._times,
        )

    def _run(self) -> None:
        if not self._groups:
            return
        main, _ = max(self._groups, key=lambda each: len(each[0]))
        self._time(main, self._answered_by_both(main), _ONE_ROW)
        self._progress(f"comparing on {self._rows.described} ...")
        good = self._replay(main)
        size = min(self._rows.largest_batch, self._pairs.most_rows(main))
        if good and size > 1:
            self._time(main, np.resize(good, size).tolist(), 1.0)

    def _is_over(self, share: float) -> bool:
        return self._pairs.seconds >= share * self._limit_s

    def _answered_by_both(self, group: RowGroup) -> Sequence[int]:
        """Return one row that both versions answer, or none."""
        tried = np.linspace(0, len(group) - 1, min(_TRIED, len(group))).round()
        for row in tried.astype(int).tolist():
            if not _has_failed(self._pairs.both(group, [row])):
                return [row]
            if self._is_over(_ONE_ROW):
                break
        return []

    def _replay(self, main: RowGroup) -> list[int]:
        """Compare the replayed rows; return those of a group that both answer."""
        good: list[int] = []
        weight = 0
        total = sum(len(group) for group, _ in self._groups)
        for group, start in self._groups:
            weight += len(group)
            share = _ONE_ROW + (_REPLAY - _ONE_ROW) * weight / total
            until_s = share * self._limit_s
            if self._tally.rows and self._pairs.seconds >= until_s:
                break
            for pair in self._pairs.of(group, range(len(group)), until_s):
                self._tally.add(group.signature_name, pair, start)
                if group is main and not _has_failed(pair):
                    good += pair.rows
        return good

    def _time(self, group: RowGroup, rows: Sequence[int], share: float) -> None:
        """Measure batches of these rows, or of fewer if so many do not fit."""
        pairs = self._pairs
        while rows and _has_failed(pairs.both(group, rows)):
            rows = rows[: len(rows) // 2]
        if not rows or any(each.rows >= len(rows) for each in self._times):
            return
        self._progress(f"timing batches of {len(rows)} ...")
        self._times.append(
            measure(
                len(rows),
                lambda: pairs.run(pairs.serving, group, rows)[1],
                lambda: pairs.run(pairs.candidate, group, rows)[1],
                self._config.max_slowdown,
                lambda: self._is_over(share),
            )
        )


def _has_failed(pair: Pair) -> bool:
    return not all(isinstance(each, Answers) for each in pair[1:])
