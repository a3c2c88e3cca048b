"""The folder that one server's processes share: made by the master, used by workers.

What they have counted is in it, what is stuck in them, and where model processes
listen.
"""

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.errors import SettingsError

# Where it is; set by the server, and no setting.
RUN_DIR = "_BASKET_RUN_DIR"
METRICS_DIR = "PROMETHEUS_MULTIPROC_DIR"
_BATCHING_PARAMETERS = "BASKET_BATCHING_PARAMETERS_FILE"
_MEMORY = "/dev/shm"  # noqa: S108
# Set where somebody has logged in. When he logs out, systemd removes his files in
# memory, unless he is a system user.
_SESSION = "XDG_SESSION_ID"
_LAST_SYSTEM_UID = 999


def in_memory() -> str | None:
    """Where it can be in memory; None: TMPDIR is to say, or says already.

    On a disk that is full, the first thing that a worker counts would end it.
    """
    is_emptied = _SESSION in os.environ and os.geteuid() > _LAST_SYSTEM_UID
    if is_emptied or "TMPDIR" in os.environ or not os.access(_MEMORY, os.W_OK):
        return None
    return _MEMORY


def make(parent: str | None, *, reexecuted: bool) -> None:
    """Make it in a folder, None: in TMPDIR, and tell the processes to come where it is.

    A re-executed master begins with the environment of the start, and so with a
    folder of its own; but one for the metrics that the user named is the old one's too.

    Raises:
        SettingsError: one of the folders can't be written.
    """
    with usable("--worker-tmp-dir", parent):
        run_dir = tempfile.mkdtemp(prefix="basket-", dir=parent)
    # Gunicorn's own hook is not called where a start fails.
    atexit.register(_remove, run_dir, os.getpid())
    os.environ[RUN_DIR] = run_dir
    os.environ.setdefault(METRICS_DIR, f"{run_dir}/metrics")
    folder = Path(os.environ[METRICS_DIR])
    with usable(METRICS_DIR, folder):
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
        if not reexecuted:
            for file in folder.glob("*.db"):
                file.unlink()


def shared(name: str) -> Path | None:
    """Something in it; None: nobody has made it."""
    run_dir = os.environ.get(RUN_DIR)
    return Path(run_dir) / name if run_dir else None


def keep_batching_parameters(file: Path | None) -> None:
    """Show the workers a copy, so that those to come read what was checked here."""
    copy = shared("batching_parameters")
    if copy and file not in (None, copy):
        shutil.copyfile(file, copy)
        os.environ[_BATCHING_PARAMETERS] = str(copy)


def hand_over(uid: int, gid: int) -> None:
    """Give the user that workers run as all that is in it by now.

    Raises:
        SettingsError: that is not allowed.
    """
    if (uid, gid) == (os.geteuid(), os.getegid()):
        return
    folder = Path(os.environ[RUN_DIR])
    with usable("--user", uid):
        for path in (folder, *folder.rglob("*")):
            os.chown(path, uid, gid)


def be_temporary_folder() -> None:
    """Where all but memory is read-only: TensorFlow wants one to be imported."""
    try:
        tempfile.gettempdir()
    except FileNotFoundError:
        os.environ["TMPDIR"] = os.environ[RUN_DIR]


@contextmanager
def usable(setting: str, value: object) -> Iterator[None]:
    """Say which setting is wrong where the system fails.

    Raises:
        SettingsError: it did; with what the setting says.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise SettingsError(f"{setting}={str(value or '')!r}: {reason}") from error


def _remove(folder: str, owner: int) -> None:
    """Remove a folder at the end of the process that has made it.

    Workers, which are forked from that, end in the same way.
    """
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
