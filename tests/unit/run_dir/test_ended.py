"""The number of workers that have ended."""

from app import run_dir


def test_workers_that_ended_are_counted(tmp_path, monkeypatch):
    """Each call of the master counts one, and any process reads the number."""
    monkeypatch.setenv(run_dir.RUN_DIR, str(tmp_path))
    assert run_dir.ended() == 0
    run_dir.count_end()
    run_dir.count_end()
    assert run_dir.ended() == 2


def test_no_worker_has_ended_without_a_run_directory(monkeypatch):
    """Outside Gunicorn there is no master."""
    monkeypatch.delenv(run_dir.RUN_DIR, raising=False)
    assert run_dir.ended() == 0
