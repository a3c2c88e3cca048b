"""The request log: lines of JSON, in a file that may be moved."""

import json
import os
import resource
import signal
import stat

import pytest

from app.background import BackgroundLimits
from app.capture.request_log import Entry, RequestLog
from testing.server import wait_until

WITHIN_S = 10
SOON = BackgroundLimits(0.01, 1000, 1, 1000, 1)
AT_CLOSE = BackgroundLimits(60, 1000, 1, 1000, 1)
STAGES_S = {"decode": 0.001, "queue": 0.0, "infer": 0.0123456, "encode": 0.0001}


def entry(number=1, **changes):
    about = (1e9, f"id-{number}", "ann", "m", 7, 200, 3, 0.0203, STAGES_S)
    return Entry(*about)._replace(**changes)


@pytest.fixture(name="log")
def _log(tmp_path):
    dropped = []
    log = RequestLog(str(tmp_path / "requests.jsonl"), dropped.append, SOON)
    log.dropped, log.file = dropped, tmp_path / "requests.jsonl"
    yield log
    log.close(WITHIN_S)


def lines(file):
    return [json.loads(line) for line in file.read_text().split("\n")[:-1]]


def test_line_has_all_that_is_known(log):
    """Times are UTC and milliseconds."""
    log.add(entry())
    log.add(entry(2, model=None, version=None, rows=None, status=404, stages_s=None))
    log.close(WITHIN_S)
    first, second = lines(log.file)
    assert first == {
        **{"time": "2001-09-09T01:46:40.000Z", "request_id": "id-1", "client": "ann"},
        **{"model": "m", "version": 7, "status": 200, "rows": 3, "ms": 20.3},
        **{"decode_ms": 1.0, "queue_ms": 0.0, "infer_ms": 12.346, "encode_ms": 0.1},
    }
    assert (second["model"], second["rows"], second["status"]) == (None, None, 404)
    assert "infer_ms" not in second
    assert stat.S_IMODE(log.file.stat().st_mode) == 0o600


def test_line_feed_of_a_client_stays_in_its_line(log):
    """A client can't write a line of its own."""
    log.add(entry(client='a\n{"forged": 1}\u2028'))
    log.close(WITHIN_S)
    (line,) = lines(log.file)
    assert line["client"] == 'a\n{"forged": 1}\u2028'


def test_client_named_like_the_end_of_a_line_stays_in_its_line(log):
    """Lines are encoded together, and split where no text of a client can be."""
    names = ['},{"time":"', '{"time":', '"},{"time":']
    for name in names:
        log.add(entry(client=name))
    log.close(WITHIN_S)
    assert [line["client"] for line in lines(log.file)] == names


def test_moved_file_is_created_again(log):
    """As logrotate does it; no signal is needed."""
    log.add(entry(1))
    wait_until(lambda: log.file.exists() and lines(log.file), WITHIN_S)
    moved = log.file.rename(log.file.with_suffix(".1"))
    log.add(entry(2))
    wait_until(lambda: log.file.exists() and lines(log.file), WITHIN_S)
    assert [each["request_id"] for each in lines(moved)] == ["id-1"]
    assert [each["request_id"] for each in lines(log.file)] == ["id-2"]


def test_file_that_can_not_be_written_is_logged_once(log, caplog):
    """Its entries are counted, and the next ones are written when it can."""
    log.file.mkdir()
    for number in range(1, 4):
        log.add(entry(number))
        wait_until(lambda wanted=number: sum(log.dropped) == wanted, WITHIN_S)
    log.file.rmdir()
    log.add(entry(4))
    log.close(WITHIN_S)
    assert [each["request_id"] for each in lines(log.file)] == ["id-4"]
    (line,) = [each.getMessage() for each in caplog.records]
    assert line == f"BASKET_REQUEST_LOG={log.file}: Is a directory"


def test_line_that_a_full_disk_cut_off_spoils_no_other(log):
    """What was written whole is not counted as dropped; the next line is its own."""
    log.add(entry(1))
    wait_until(lambda: log.file.exists() and log.file.stat().st_size, WITHIN_S)
    size = log.file.stat().st_size
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    # Room for one line and a half.
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + size * 3 // 2, limits[1]))
    try:
        for number in (2, 3, 4):
            log.add(entry(number))
        wait_until(lambda: sum(log.dropped) == 2, WITHIN_S)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    log.add(entry(5))
    log.close(WITHIN_S)
    first, second, half, last = log.file.read_text().splitlines()
    ids = [json.loads(line)["request_id"] for line in (first, second, last)]
    assert ids == ["id-1", "id-2", "id-5"]
    assert half.startswith('{"time":')
    assert log.dropped == [2]


def test_many_entries_are_written_in_pieces_of_a_page(tmp_path, monkeypatch):
    """A pipe takes so many bytes without mixing them with another process's."""
    file, dropped = tmp_path / "requests.jsonl", []
    log = RequestLog(str(file), dropped.append, AT_CLOSE)
    sizes, write = [], os.write

    def counting(descriptor, content):
        sizes.append(len(content))
        return write(descriptor, content)

    monkeypatch.setattr(os, "write", counting)
    for number in range(200):
        log.add(entry(number))
    log.close(WITHIN_S)
    assert not dropped
    assert len(lines(file)) == 200
    assert max(sizes) <= 4096
    assert len(sizes) < 20
    assert file.read_bytes().endswith(b"}\n")
