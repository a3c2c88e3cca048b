"""Multiprocess mode: metrics files of live and of dead processes."""

import errno
import fcntl
import os
import subprocess
import sys

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.mmap_dict import MmapedDict, mmap_key

from app.prometheus_private import Collector

HERE = os.getpid()


@pytest.fixture(name="dead", scope="module")
def _dead():
    """The ids of dead processes."""
    pids = []
    for _ in range(3):
        process = subprocess.Popen([sys.executable, "-c", ""])
        process.wait()
        pids.append(process.pid)
    return pids


def count(folder, pid, requests, seconds=()):
    """Write the files of a process: requests by status, and seconds in a histogram."""
    counter = MmapedDict(str(folder / f"counter_{pid}.db"))
    for status, number in requests.items():
        key = mmap_key("asked", "asked_total", ["status"], [status], "Help.")
        counter.write_value(key, number, 0.0)
    counter.close()
    histogram = MmapedDict(str(folder / f"histogram_{pid}.db"))
    for bucket in ("1.0", "+Inf"):
        inside = [each for each in seconds if each <= float(bucket)]
        outside = [each for each in inside if bucket == "+Inf" and each <= 1]
        key = mmap_key("took", "took_bucket", ["le"], [bucket], "Help.")
        histogram.write_value(key, len(inside) - len(outside), 0.0)
    key = mmap_key("took", "took_sum", [], [], "Help.")
    histogram.write_value(key, sum(seconds), 0.0)
    histogram.close()


def shown(folder):
    """The lines of /metrics, without comments."""
    registry = CollectorRegistry()
    registry.register(Collector(None, path=str(folder)))
    lines = generate_latest(registry).decode().splitlines()
    return sorted(line for line in lines if not line.startswith("#"))


def names(folder):
    return sorted(file.name for file in folder.iterdir())


SUMS = [
    *('asked_total{status="200"} 111.0', 'asked_total{status="400"} 5.0'),
    *('took_bucket{le="+Inf"} 4.0', 'took_bucket{le="1.0"} 3.0'),
    *("took_count 4.0", "took_sum 3.5"),
]


@pytest.fixture(name="folder")
def _folder(tmp_path, dead):
    """A folder with the files of two dead processes and of a live one."""
    count(tmp_path, dead[0], {"200": 1, "400": 5}, [0.5, 2.0])
    count(tmp_path, dead[1], {"200": 10}, [0.5])
    count(tmp_path, HERE, {"200": 100}, [0.5])
    return tmp_path


MERGED = [
    *(f"counter_{HERE}.db", "counter_dead.db"),
    *(f"histogram_{HERE}.db", "histogram_dead.db"),
]


def test_scrape_merges_files_of_dead_processes(folder):
    """The merged files are one of each kind, and the sums do not change."""
    for _ in range(3):
        assert shown(folder) == SUMS
        assert names(folder) == sorted(MERGED)


def test_file_that_is_just_created_is_no_error(folder, dead):
    """It is empty for a moment, and for ever if its process is killed then."""
    for pid in (HERE + 1_000_000_000, dead[2]):
        (folder / f"counter_{pid}.db").touch()
    (folder / f"gauge_livesum_{HERE}.db").touch()
    assert shown(folder) == SUMS


def test_scrape_merges_file_of_process_that_died_later(folder, dead):
    """The values of another dead process are added to the merged files."""
    shown(folder)
    count(folder, dead[2], {"200": 1000, "503": 1})
    lines = shown(folder)
    assert lines[:3] == [
        *('asked_total{status="200"} 1111.0', 'asked_total{status="400"} 5.0'),
        'asked_total{status="503"} 1.0',
    ]
    assert names(folder) == sorted(MERGED)


def test_files_are_not_merged_while_another_process_reads_them(folder):
    """A scrape during another one merges nothing, and its sums are complete."""
    before = names(folder)
    reader = os.open(folder, os.O_RDONLY)
    fcntl.flock(reader, fcntl.LOCK_SH)
    assert shown(folder) == SUMS
    assert names(folder) == before
    os.close(reader)
    assert shown(folder) == SUMS
    assert names(folder) == sorted(MERGED)


def test_files_are_not_merged_on_a_full_disk(folder, monkeypatch, caplog):
    """The sums are complete, and the log has the error."""
    before = names(folder)

    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", fail)
    assert shown(folder) == SUMS
    assert names(folder) == before
    assert "No space left on device" in caplog.text


def test_merge_keeps_many_series(folder, dead):
    """A merged file has each of many series, with labels of any length."""
    statuses = {f"{number}-é" * (1 + number % 7): number for number in range(3000)}
    count(folder, dead[2], statuses)
    lines = shown(folder)
    assert len(lines) == len(SUMS) + len(statuses)
    assert shown(folder) == lines
    assert names(folder) == sorted(MERGED)
