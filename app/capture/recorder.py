"""Writes captured requests to files, in a thread of its own."""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from app.background import Background, BackgroundLimits
from app.capture.blocks import encode
from app.capture.captured import Captured, grouped
from app.capture.ring import Ring, folder_of
from app.capture.time_budget import TimeBudget

# Requests in one file; a kill loses no more, and none that is older than 2 s.
_BLOCK_REQUESTS, _BLOCK_BYTES = 1024, 4 << 20
_BOUNDS = BackgroundLimits(
    2.0, _BLOCK_REQUESTS, _BLOCK_BYTES, 8 * _BLOCK_REQUESTS, 32 << 20
)
# What a request takes of the event loop until it is recorded.
_RECORD_S = 5e-6
# What becomes of a captured request.
WRITTEN, DROPPED, FAILED, SKIPPED = "written", "dropped", "failed", "skipped"
_log = logging.getLogger(__name__)


class NotCapturable(Exception):
    """A request can't be written; the text says why."""


class Sample(NamedTuple):
    """A request that is to be written, of about so many bytes.

    `request` may be a function that makes what is written, in the writing thread, or
    raises NotCapturable.
    """

    model: str
    keep_bytes: int
    size: int
    request: Captured | Callable[[], Sequence[Captured]]


class Recorder:
    """Writes samples of all models; one for each process."""

    def __init__(
        self,
        root: Path,
        count: Callable[[str, str, int], None],
        bounds: BackgroundLimits = _BOUNDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Store the folder; `count` gets a model, what became of requests, how many.

        A test replaces `clock`.
        """
        self._root = root
        self._count = count
        self._time = TimeBudget(clock)
        self._rings: dict[str, Ring] = {}
        # The last error of each model, so that it is logged once.
        self._problems: dict[str, str] = {}
        # Models of which a request was skipped.
        self._skipped: set[str] = set()
        self._background = Background("capture", self._write, bounds)

    def takes(self, model: str) -> bool:
        """Return whether there is time for a model's request, else count it as dropped.

        Any thread may call this.
        """
        if self._time.is_left():
            return True
        self._count(model, DROPPED, 1)
        return False

    def record(self, sample: Sample) -> None:
        """Have a sample written, or drop it; any thread may call this."""
        if not self._background.offer(sample, sample.size):
            self._count(sample.model, DROPPED, 1)

    def close(self, timeout_s: float) -> None:
        """Write what was recorded, and drop what comes later."""
        self._background.close(timeout_s)

    def _write(self, samples: list[Sample]) -> None:
        began_at, number = time.thread_time(), len(samples)
        self._write_all(samples)
        self._time.spend(time.thread_time() - began_at + number * _RECORD_S)

    def _write_all(self, samples: list[Sample]) -> None:
        by_model: dict[str, list[Sample]] = defaultdict(list)
        for each in samples:
            by_model[each.model].append(each)
        for model, found in by_model.items():
            # As basket.toml says now.
            keep_bytes = found[-1].keep_bytes
            for block in _blocks(found, keep_bytes):
                self._write_block(model, block, keep_bytes)

    def _write_block(
        self, model: str, samples: Sequence[Sample], keep_bytes: int
    ) -> None:
        requests, skipped, problem = _made(samples)
        if problem and model not in self._skipped:
            self._skipped.add(model)
            _log.warning("model %s: some requests are not captured: %s", model, problem)
        if skipped:
            self._count(model, SKIPPED, skipped)
        if not requests:
            return
        ring = self._rings.get(model)
        if ring is None:
            ring = self._rings[model] = Ring(folder_of(self._root, model))
        result, problem = WRITTEN, ""
        try:
            for content in _contents(requests, keep_bytes):
                ring.add(content, keep_bytes)
        except Exception as error:  # must not end the thread
            reason = getattr(error, "strerror", None) or repr(error)
            result, problem = FAILED, f"{self._root}: {reason}"
        self._show(model, problem)
        self._count(model, result, len(samples) - skipped)

    def _show(self, model: str, problem: str) -> None:
        """Log a problem once, until it is gone."""
        before = self._problems.get(model, "")
        self._problems[model] = problem
        if problem and problem != before:
            _log.error("model %s: requests are not captured: %s", model, problem)
        elif before and not problem:
            _log.info("model %s: requests are captured again", model)


def _made(samples: Sequence[Sample]) -> tuple[list[Captured], int, str]:
    """Return what is to be written, how many samples are not, and why the last."""
    requests: list[Captured] = []
    skipped, problem = 0, ""
    for each in samples:
        try:
            request = each.request
            if isinstance(request, Captured):
                requests.append(request)
            else:
                requests += request()
        except Exception as error:  # must not end the thread
            skipped += 1
            problem = str(error) if isinstance(error, NotCapturable) else repr(error)
    return requests, skipped, problem


def _contents(requests: Sequence[Captured], keep_bytes: int) -> Iterator[bytes]:
    """Yield the files of requests, more than one if one would take half of the ring.

    Requests of unlike shapes take more than their values.
    """
    content = encode(grouped(requests))
    if len(content) <= keep_bytes // 2 or len(requests) == 1:
        yield content
        return
    middle = len(requests) // 2
    yield from _contents(requests[:middle], keep_bytes)
    yield from _contents(requests[middle:], keep_bytes)


def _blocks(samples: Sequence[Sample], keep_bytes: int) -> Iterator[list[Sample]]:
    """Yield the samples of each file: a ring consists of several."""
    most_bytes = min(_BLOCK_BYTES, keep_bytes // 4)
    block: list[Sample] = []
    size = 0
    for each in samples:
        if block and (size + each.size > most_bytes or len(block) >= _BLOCK_REQUESTS):
            yield block
            block, size = [], 0
        block.append(each)
        size += each.size
    if block:
        yield block
