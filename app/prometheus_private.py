"""The private API of prometheus_client that Basket uses, all of it in this module.

`values.ValueClass` and `values.MultiProcessValue`: the class of each value, replaced
because the default one asks the kernel for the process id at every increment, and its
`set_exemplar` drops the exemplar. `_key` is a value's key in its file.

`Histogram._upper_bounds`, `._buckets` and `._sum`: the public `observe` takes one
amount, and each call takes two locks and writes two values.

`mmap_dict.MmapedDict`, the layout and names of its files, and
`MultiProcessCollector._path`: nothing public merges the files of dead processes. With
`--max-requests` their number grows for ever, and each scrape would take longer.

tests/unit/test_prometheus_private.py fails by name when one of them moves.
"""

import fcntl
import logging
import os
import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from prometheus_client import (
    REGISTRY,
    CollectorRegistry,
    Gauge,
    Histogram,
    Metric,
    values,
)
from prometheus_client.mmap_dict import MmapedDict
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.samples import Exemplar

from app.exemplar_files import ExemplarFile, Series, newest, series_of
from app.run_dir.metrics_files import is_metrics_file
from app.run_dir.notes import is_alive

# Of the metrics files, where there are several processes.
_FOLDER = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
# The files that are merged; gauges count for live processes only.
_KINDS = ("counter", "histogram")
# Stands in a file's name in place of the process id.
_DEAD = "dead"
# Upper bounds: a file's header, and a value's size beside its key.
_HEADER_BYTES, _VALUE_BYTES = 8, 32

# The class has no type annotations.
_Values: Any = MmapedDict
_exemplars = ExemplarFile(Path(_FOLDER)) if _FOLDER is not None else None
# Writes all pending amounts of one series, or of one group of series.
Write = Callable[[list[Any]], None]

_log = logging.getLogger(__name__)


def fix_process_id() -> None:
    """Read the process id once for all metrics that are created from now on.

    A process that is forked afterwards must not count.
    """
    if _exemplars is not None:
        pid, exemplars = os.getpid(), _exemplars
        base: Any = values.MultiProcessValue(lambda: pid)  # type: ignore[no-untyped-call]

        class Value(base):  # type: ignore[misc]
            """A value in a file that all processes of the server read."""

            def set_exemplar(self, exemplar: Exemplar) -> None:
                exemplars.set(self._key, exemplar)

        values.ValueClass = Value


def registry() -> CollectorRegistry:
    """Return the registry of this process, or under Gunicorn one of all processes."""
    if _FOLDER is None:
        return REGISTRY
    collected = CollectorRegistry()
    Collector(collected)  # type: ignore[no-untyped-call]
    return collected


def observe_all(histogram: Histogram, amounts: Sequence[float]) -> None:
    """Observe amounts with one write per touched bucket and one to the sum."""
    bounds, buckets = histogram._upper_bounds, histogram._buckets
    numbers: dict[int, int] = defaultdict(int)
    for amount in amounts:
        numbers[bisect_left(bounds, amount)] += 1
    for index, number in numbers.items():
        buckets[index].inc(number)
    histogram._sum.inc(sum(amounts))


class Pending:
    """Records that wait to be written, so that many of them take one write.

    Appending needs no lock, as no other thread can come between its steps.
    """

    def __init__(self, max_records: int) -> None:
        """Store the number of records at which they are written without a flush."""
        self._max_records = max_records
        self._records: list[tuple[Write, Any]] = []
        self._gauges: dict[Gauge, float] = {}
        self._flushing = threading.Lock()

    def record(self, write: Write, amount: Any) -> None:
        """Append an amount; `write` gets all amounts that were recorded with it."""
        self._records.append((write, amount))
        if len(self._records) >= self._max_records:
            self.flush()

    def setter(self, gauge: Gauge) -> Callable[[float], object]:
        """Return what stores the newest value of a gauge, without a call of Python."""
        return partial(self._gauges.__setitem__, gauge)

    def flush(self) -> None:
        """Write all records; one that can't be written is logged."""
        with self._flushing:
            # Meanwhile other threads may append.
            records = self._records[:]
            del self._records[: len(records)]
            amounts: dict[Write, list[Any]] = defaultdict(list)
            for write, amount in records:
                amounts[write].append(amount)
            for write, group in amounts.items():
                try:
                    write(group)
                except Exception:
                    _log.exception("%s records of metrics were not written", len(group))
            while self._gauges:
                gauge, value = self._gauges.popitem()
                gauge.set(value)
            try:
                if _exemplars is not None:
                    _exemplars.write()
            except OSError as error:
                _log.warning("exemplars were not written: %s", error)


class Collector(MultiProcessCollector):
    """Collects the values of all processes from the files in a folder."""

    def collect(self) -> Iterable[Metric]:
        """Return the sums over all processes, after merging files of dead ones."""
        folder = Path(self._path)
        try:
            _merge_dead(folder)
        except BlockingIOError:
            pass  # Another process reads the files now; a later scrape merges them.
        except OSError as error:
            _log.warning("metrics files of dead processes can't be merged: %s", error)
        with _locked(folder, fcntl.LOCK_SH):
            files = [str(file) for file in folder.glob("*.db") if _has_values(file)]
            merged: Iterable[Metric] = self.merge(files)  # type: ignore[no-untyped-call]
        try:
            exemplars = newest(folder)
        except (OSError, ValueError) as error:
            _log.warning("exemplars can't be read: %s", error)
            return merged
        return _with_exemplars(merged, exemplars)


def _with_exemplars(
    metrics: Iterable[Metric], exemplars: Mapping[Series, Exemplar]
) -> Iterator[Metric]:
    for metric in metrics:
        if metric.type == "histogram" and exemplars:
            metric.samples = [
                each._replace(exemplar=exemplars.get(series_of(each.name, each.labels)))
                for each in metric.samples
            ]
        yield metric


def _has_values(file: Path) -> bool:
    """Return whether it is a file of metrics with a header, unlike a new one."""
    try:
        return is_metrics_file(file) and file.stat().st_size > 0
    except FileNotFoundError:  # its process has ended
        return False


def _merge_dead(folder: Path) -> None:
    """Merge the files of dead processes into one of each kind.

    Raises:
        BlockingIOError: another process reads or merges the files now.
        OSError: the disk has no space for the merged file.
    """
    if not any(_files_of_dead(folder, kind) for kind in _KINDS):
        return
    with _locked(folder, fcntl.LOCK_EX | fcntl.LOCK_NB):
        for kind in _KINDS:
            # Listed again: another process may have merged them before the lock.
            files = _files_of_dead(folder, kind)
            if files:
                _merge(files, folder / f"{kind}_{_DEAD}.db")


def _files_of_dead(folder: Path, kind: str) -> list[Path]:
    files = filter(is_metrics_file, folder.glob(f"{kind}_[0-9]*.db"))
    return [f for f in files if not is_alive(int(f.stem.rpartition("_")[2]))]


def _merge(files: Sequence[Path], target: Path) -> None:
    sums: dict[str, float] = defaultdict(float)
    before = [target] if target.exists() else []
    for file in filter(_has_values, (*before, *files)):
        for key, value, _, _ in _Values.read_all_values_from_file(file):
            sums[key] += value
    partial = target.with_suffix(".partial")
    try:
        _write(partial, sums)
        partial.rename(target)
    finally:
        partial.unlink(missing_ok=True)
    for file in files:
        file.unlink()


def _write(path: Path, sums: Mapping[str, float]) -> None:
    size = _HEADER_BYTES + sum(len(key.encode()) + _VALUE_BYTES for key in sums)
    with path.open("wb") as file:
        # On a full disk, a write to mapped memory would kill the process.
        os.posix_fallocate(file.fileno(), 0, size)
    merged = _Values(str(path))
    for key, value in sums.items():
        merged.write_value(key, value, 0.0)
    merged.close()


@contextmanager
def _locked(folder: Path, how: int) -> Iterator[None]:
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, how)
        yield
    finally:
        # gevent's os.close closes later, and the lock would last until then.
        fcntl.flock(lock, fcntl.LOCK_UN)
        os.close(lock)
