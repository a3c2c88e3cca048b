"""The run directory: the files that the processes of one server share.

The master creates it and removes it at its end; workers get its path through the
environment. It holds metrics files, notes (`notes.py`), a copy of the batching
parameters and of keys, samples and errors for the page, and the sockets of model
processes.
"""

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from app.errors import SettingsError
from app.run_dir.metrics_files import is_metrics_file
from app.run_dir.notes import Notes

# Environment variables that the master sets for its workers; these are no settings.
RUN_DIR = "_BASKET_RUN_DIR"
# One path per line.
MODEL_SOCKETS = "_BASKET_MODEL_SOCKETS"
METRICS_DIR = "PROMETHEUS_MULTIPROC_DIR"
_BATCHING_PARAMETERS = "BASKET_BATCHING_PARAMETERS_FILE"
# Topics of notes.
STUCK, UNLOADED, LOADING = "stuck", "unloaded", "loading"
DEFAULT_MODEL, PROCESSES = "default_model", "processes"
READY_ONCE = "ready_once"
# Keys of the notes on PROCESSES.
WORKER, MODEL_PROCESS = "worker", "model process"
# A file with a byte for each worker that has ended.
_ENDED = "ended"
_SHARED_MEMORY = "/dev/shm"  # noqa: S108
# Set in a login session. When the user logs out, systemd removes the files of a user in
# shared memory, unless it is a system user.
_SESSION = "XDG_SESSION_ID"
_LAST_SYSTEM_UID = 999


def in_shared_memory() -> str | None:
    """Return the parent for a run directory in memory, or None to use TMPDIR.

    On a full disk, the first metric of a worker would end it with SIGBUS.
    """
    is_emptied = _SESSION in os.environ and os.geteuid() > _LAST_SYSTEM_UID
    is_writable = os.access(_SHARED_MEMORY, os.W_OK)
    if is_emptied or "TMPDIR" in os.environ or not is_writable:
        return None
    return _SHARED_MEMORY


def create(parent: str | None, *, reexecuted: bool) -> None:
    """Create the run directory in `parent`, None: in TMPDIR, and publish its path.

    A re-executed master has a run directory of its own, but shares a metrics folder
    that the user has set with the old master; so it removes no metrics files.

    Raises:
        SettingsError: one of the folders can't be written.
    """
    with as_settings_error("--worker-tmp-dir", parent):
        run_dir = tempfile.mkdtemp(prefix="basket-", dir=parent)
    # Gunicorn's on_exit hook is not called when the start fails.
    atexit.register(_remove, run_dir, os.getpid())
    os.environ[RUN_DIR] = run_dir
    # Workers leave these notes before they change to their user, who reads them.
    (Path(run_dir) / PROCESSES).mkdir()
    if not os.environ.get(METRICS_DIR):
        os.environ[METRICS_DIR] = f"{run_dir}/metrics"
    folder = Path(os.environ[METRICS_DIR])
    with as_settings_error(METRICS_DIR, folder):
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
        if not reexecuted:
            for file in filter(is_metrics_file, folder.iterdir()):
                file.unlink()


def notes_on(topic: str) -> Notes:
    """Return the notes on a topic; outside Gunicorn they are this process's alone."""
    return Notes(path_of(topic))


def publish_model_sockets(paths: Iterable[str]) -> None:
    """Have all later workers connect to the model processes on these sockets."""
    os.environ[MODEL_SOCKETS] = "\n".join(paths)


def model_sockets() -> list[str]:
    """Return the paths of the model processes' sockets; none without Gunicorn."""
    return os.environ.get(MODEL_SOCKETS, "").splitlines()


def copy_batching_parameters(file: Path | None) -> None:
    """Have all later workers read a copy of the file that was checked at the start."""
    copy = Path(os.environ[RUN_DIR]) / "batching_parameters"
    if file not in (None, copy):
        shutil.copyfile(file, copy)
        os.environ[_BATCHING_PARAMETERS] = str(copy)


def path_of(file: str) -> Path | None:
    """Return the path of a file in the run directory; None outside Gunicorn."""
    run_dir = os.environ.get(RUN_DIR)
    return Path(run_dir) / file if run_dir else None


def count_end() -> None:
    """Count, in the master, a worker that has ended.

    Raises:
        OSError: the run directory can't be written.
    """
    with (Path(os.environ[RUN_DIR]) / _ENDED).open("ab") as file:
        file.write(b".")


def ended() -> int:
    """Return how many workers have ended; 0 outside Gunicorn."""
    file = path_of(_ENDED)
    return file.stat().st_size if file is not None and file.exists() else 0


def change_owner(uid: int, gid: int) -> None:
    """Give the run directory, with all files in it, to the user of the workers.

    Raises:
        SettingsError: this process may not change owners.
    """
    if (uid, gid) == (os.geteuid(), os.getegid()):
        return
    folder = Path(os.environ[RUN_DIR])
    with as_settings_error("--user", uid):
        for path in (folder, *folder.rglob("*")):
            os.chown(path, uid, gid)


def provide_temporary_folder() -> None:
    """Set TMPDIR to the run directory on a machine without a writable one.

    The import of TensorFlow needs a temporary folder.
    """
    try:
        tempfile.gettempdir()
    except FileNotFoundError:
        os.environ["TMPDIR"] = os.environ[RUN_DIR]


@contextmanager
def as_settings_error(setting: str, value: object) -> Iterator[None]:
    """Convert an OSError in the block to an error that names a setting and its value.

    Raises:
        SettingsError: the block raised an OSError.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise SettingsError(f"{setting}={str(value or '')!r}: {reason}") from error


def _remove(folder: str, creator: int) -> None:
    """Remove a folder, in the process that created it only: workers inherit atexit."""
    if os.getpid() == creator:
        shutil.rmtree(folder, ignore_errors=True)
