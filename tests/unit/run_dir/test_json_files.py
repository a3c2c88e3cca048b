"""JSON values that processes share by files."""

import multiprocessing
import threading

import pytest

from app.run_dir.json_files import JsonFiles


@pytest.fixture(name="files", params=["folder", "memory"])
def _files(request, tmp_path):
    return JsonFiles(tmp_path / "new" if request.param == "folder" else None)


def test_value_is_none_until_it_is_set(files):
    """Each model has its own, whatever is in its name."""
    assert files.get("a") is None
    files.set("a", [1, {"b": 2}])
    files.set("a/proof", "x")
    assert files.get("a") == [1, {"b": 2}]
    assert files.get("a/proof") == "x"


def test_lock_keeps_other_threads_out_of_one_model(files):
    """Blocks of other models run meanwhile."""
    entered = threading.Event()

    def enter():
        with files.locked("a"):
            entered.set()

    with files.locked("a"), files.locked("b"):
        thread = threading.Thread(target=enter)
        thread.start()
        assert not entered.wait(0.05)
    thread.join()
    assert entered.is_set()


def _add_many(folder, times):
    files = JsonFiles(folder)
    for _ in range(times):
        with files.locked("m"):
            files.set("m", files.get("m") + 1)


def test_processes_change_a_value_one_at_a_time(tmp_path):
    """No change is lost."""
    JsonFiles(tmp_path).set("m", 0)
    context = multiprocessing.get_context("spawn")
    others = [context.Process(target=_add_many, args=(tmp_path, 200)) for _ in range(2)]
    for each in others:
        each.start()
    for each in others:
        each.join()
        assert each.exitcode == 0
    assert JsonFiles(tmp_path).get("m") == 400


def test_folder_is_for_its_owner_alone(tmp_path):
    """It may name what clients must not see."""
    JsonFiles(tmp_path / "new").set("m", 0)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
