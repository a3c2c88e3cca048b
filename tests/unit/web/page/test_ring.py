"""The newest values of a list, in a file or in memory."""

import threading

import pytest

from app.web.page.ring import LineRing


def numbers(ring):
    return [value["n"] for value in ring.newest_first()]


@pytest.fixture(params=["file", "memory"])
def file(request, tmp_path):
    return tmp_path / "values" if request.param == "file" else None


def test_ring_keeps_the_newest_values(file):
    """Of more values than it keeps, the oldest are gone; the newest is the first."""
    ring = LineRing(file, 3)
    assert numbers(ring) == []
    for number in range(10):
        ring.append([{"n": number}])
        assert numbers(ring) == list(range(number, max(number - 3, -1), -1))
    ring.append([{"n": number} for number in range(10, 15)])
    assert numbers(ring) == [14, 13, 12]


def test_file_stays_short(tmp_path):
    """However many values have been added, the file has at most twice as many."""
    ring, file = LineRing(tmp_path / "values", 3), tmp_path / "values"
    for number in range(100):
        ring.append([{"n": number}])
        assert len(file.read_text().splitlines()) <= 6


def test_value_of_one_process_is_read_by_another(tmp_path):
    """Two rings on one file have the values of both, in the order of writing."""
    first, second = (LineRing(tmp_path / "values", 4) for _ in range(2))
    for number, ring in enumerate((first, second, second, first, second)):
        ring.append([{"n": number}])
        assert numbers(first) == numbers(second)
    assert numbers(first) == [4, 3, 2, 1]


def test_line_that_a_killed_process_left_unfinished_is_skipped(tmp_path):
    """A part of a line is no value, and neither is it part of the next one."""
    file = tmp_path / "values"
    ring = LineRing(file, 9)
    ring.append([{"n": 1}])
    with file.open("a") as other:
        other.write('{"n": ')
    assert numbers(ring) == [1]
    ring.append([{"n": 2}])
    assert numbers(ring) == [2, 1]


def test_readers_never_see_less_than_was_written(tmp_path):
    """While a file is appended to and replaced, readers find all of the newest."""
    file = tmp_path / "values"
    ring, done, seen = LineRing(file, 20), threading.Event(), []
    ring.append([{"n": number} for number in range(20)])

    def read():
        while not done.is_set():
            seen.append(numbers(LineRing(file, 20)))

    thread = threading.Thread(target=read)
    thread.start()
    for number in range(20, 1000):
        ring.append([{"n": number}])
    done.set()
    thread.join()
    newest = [values[0] for values in seen]
    assert newest == sorted(newest)
    for values in seen:
        assert values == list(range(values[0], values[0] - 20, -1))


def test_unwritable_file_raises_an_os_error(tmp_path):
    """A ring whose folder is gone says so."""
    with pytest.raises(OSError, match="No such file"):
        LineRing(tmp_path / "gone" / "values", 3).append([{"n": 1}])
