"""Build the image with buildah, and run it in namespaces of its own, without an engine.

Buildah takes the base from its own store or from a registry. Where there is none,
debootstrap and `buildah bud` make localhost/python:3.11-slim from Debian's packages.

`python -m tests.support.image` prints the seconds from the start of a container to
/readyz, and those of a health check, of the image that the tests have built.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testing.server import ROOT, Server, free_port, wait_until

_BASES = ("localhost/python:3.11-slim", "docker.io/library/python:3.11-slim")
_STARTS = 5
_TAG = "localhost/basket-test:cpu"
# The programs that process 1 is before it is the image's.
_STEPS = ("", "unshare", "sh", "dash", "bash", "chroot", "setpriv")
# Mounts as of an engine with --read-only; then the rights of the image's user alone.
_ENTER = """
set -e
root=$1 user=$2 folder=$3; shift 3
mount --make-rprivate /
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
mkdir "$root/dev/shm"
mount -t tmpfs -o mode=1777,size=64m,noexec,nosuid,nodev shm "$root/dev/shm"
for each in null zero random urandom; do
    touch "$root/dev/$each"; mount --bind "/dev/$each" "$root/dev/$each"
done
mount -o remount,ro,bind "$root"
exec chroot "$root" setpriv --reuid "${user%:*}" --regid "${user#*:}" --clear-groups \
    --bounding-set=-all --inh-caps=-all --no-new-privs \
    sh -c 'cd "$0" && exec "$@"' "$folder" "$@"
"""


def _buildah(*args: str, timeout_s: float = 900) -> str:
    done = subprocess.run(
        ["buildah", *args],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=True,
    )
    return done.stdout.strip()


def missing() -> str:
    """Return what is missing to build and run an image, or an empty text."""
    if os.geteuid() != 0:
        return "only root can mount an image"
    tools = [
        each for each in ("buildah", "unshare", "setpriv") if not shutil.which(each)
    ]
    return f"not installed: {', '.join(tools)}" if tools else ""


def base() -> str | None:
    """Return a base image that buildah has or can pull."""
    for name in _BASES:
        with contextlib.suppress(subprocess.SubprocessError):
            _buildah("rm", _buildah("from", "--pull", name, timeout_s=120))
            return name
    return None


@dataclass
class Image:
    """A built image, mounted at `root`."""

    root: Path
    config: dict[str, Any]

    def start(self, log: Path) -> Server:
        """Start the entry point with the command, as process 1 on a port of its own."""
        port = free_port()
        config = self.config
        environ = dict(each.split("=", 1) for each in config["Env"])
        bind = environ["GUNICORN_CMD_ARGS"]
        environ["GUNICORN_CMD_ARGS"] = bind.replace("0.0.0.0:8000", f"127.0.0.1:{port}")
        # The tools that are run before are those of this machine.
        environ["PATH"] += ":/usr/sbin:/usr/bin:/sbin:/bin"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [
                    *("unshare", "--pid", "--fork", "--mount", "--ipc"),
                    *("--kill-child", "sh", "-c", _ENTER, "sh"),
                    *(str(self.root), config["User"], config["WorkingDir"]),
                    *(*config["Entrypoint"], *config["Cmd"]),
                ],
                env=environ,
                stdout=output,
                stderr=output,
            )
        return Server(process, port, log)

    @contextlib.contextmanager
    def running(self, log: Path) -> Iterator[Server]:
        """Run it, and kill it at the end."""
        server = self.start(log)
        try:
            yield server
        finally:
            server.process.kill()
            server.process.wait()

    def run(self, program: str) -> str:
        """Return what the image's Python prints for a program."""
        done = subprocess.run(
            ["chroot", str(self.root), "python", "-c", program],
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()


def init_of(server: Server) -> int:
    """Return the process id of a container's process 1, once it is the image's."""
    found: list[int] = []

    def is_init() -> bool:
        found[:] = server.workers()
        return bool(found) and _program(found[0]) not in _STEPS

    server.wait_until(is_init, 30)
    return found[0]


def child_of(pid: int) -> int:
    """Return the only child of a process, once it has one that runs Python."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    found: list[int] = []

    def has_child() -> bool:
        found[:] = map(int, children.read_text().split())
        return bool(found) and _program(found[0]).startswith("python")

    wait_until(has_child, 30)
    return found[0]


def _program(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/exe").readlink().name
    return ""


def signal_init(server: Server) -> None:
    """Send SIGTERM to process 1, as `docker stop` and the kubelet do."""
    os.kill(init_of(server), signal.SIGTERM)


@contextlib.contextmanager
def built(context: Path, base_image: str) -> Iterator[Image]:
    """Build the image for the CPU from a build context, and mount it."""
    _buildah(
        *("bud", "--quiet", "--format", "docker", "--isolation", "chroot"),
        # Buildah 1.28 can't mount files of a stage that it has in its cache.
        "--layers=false",
        *("--build-arg", f"BASE={base_image}", "--build-arg", "DEVICE=cpu"),
        *("--tag", _TAG, str(context)),
    )
    with mounted() as image:
        yield image


@contextlib.contextmanager
def mounted() -> Iterator[Image]:
    """Mount the image that was built last."""
    config = json.loads(_buildah("inspect", "--type", "image", _TAG))["Docker"][
        "config"
    ]
    container = _buildah("from", "--pull-never", _TAG)
    try:
        yield Image(Path(_buildah("mount", container)), config)
    finally:
        _buildah("rm", container)


def copy_tracked(folder: Path) -> list[str]:
    """Copy the files that git tracks into a folder, and return their paths."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    paths = listed.stdout.split("\n")[:-1]
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, folder / path)
    return paths


def _print_times() -> None:
    with mounted() as image, tempfile.TemporaryDirectory() as folder:
        _, *check = image.config["Healthcheck"]["Test"]
        for _ in range(_STARTS):
            began_at = time.monotonic()
            with image.running(Path(folder) / "log") as server:
                server.wait_until_ready()
                ready_at = time.monotonic()
                asked = [each.replace(":8000", f":{server.port}") for each in check]
                subprocess.run(["chroot", str(image.root), *asked], check=True)
                took_s = time.monotonic() - ready_at
            print(f"ready after {ready_at - began_at:.1f} s, checked in {took_s:.2f} s")


if __name__ == "__main__":
    _print_times()
