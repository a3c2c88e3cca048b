"""Processes of a server whose rollouts a test decides, times and restarts."""

from app.promotion.record import Records
from app.repository.rollouts.rollout_files import RolloutFiles
from app.repository.rollouts.standing import digest_of
from app.repository.routing import Target
from app.repository.scan import fingerprint
from tests.support.engines import Echo
from tests.support.loading import Loading
from tests.support.rollouts import Decided

TOML = """
[promotion]
steps = [1, 10, 100]
step_s = 60
watch_s = 300
"""
WATCHED_S = 3 * 60 + 300


class Clock:
    """A monotonic clock that a test moves."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class RolloutServer:
    """Loaders of one folder, one for each process of a server."""

    def __init__(self, folder):
        self.folder = folder
        self.models, self.capture_dir = folder / "models", folder / "captured"
        self.models.mkdir()
        self.clock, self.checks = Clock(), Decided()
        self.processes = []
        self.starts = 0

    def start(self, broken=None):
        """Start a process of the server, which can't load the version `broken`."""
        parts = self.checks, RolloutFiles(self.folder / f"run{self.starts}"), self.clock
        process = Loading(self.models, *parts, capture_dir=self.capture_dir)
        for version in self.versions():
            process.engines["m", version] = Echo()
        if broken is not None:
            process.engines["m", str(broken)] = ValueError("broken")
        self.processes.append(process)
        process.load()
        return process

    def restart(self, broken=None):
        """End all processes, lose what is in shared memory, and start one."""
        self.close()
        self.processes.clear()
        self.starts += 1
        return self.start(broken)

    def versions(self):
        folders = (self.models / "m").glob("[0-9]*")
        return [each.name for each in folders]

    def add(self, version, content="a", toml=TOML):
        """Write a version, whose engine all processes have."""
        folder = self.models / "m" / str(version)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "weights").write_text(content)
        (self.models / "m" / "basket.toml").write_text(toml)
        for process in self.processes:
            process.engines["m", str(version)] = Echo()

    def scan(self):
        for process in self.processes:
            process.rescan()

    def tick(self, after_s=0.0):
        """Let time pass, and have each process look at its rollouts."""
        self.clock.now += after_s
        for process in self.processes:
            process.promotions.mover.tick()

    def content(self, version):
        """Return the digest of a version's files."""
        folder = self.models / "m" / str(version)
        return digest_of(folder, fingerprint(folder))

    def record(self):
        return Records(self.capture_dir).of("m")

    def close(self):
        for process in self.processes:
            process.close()


def version_of(process, client=None):
    """Return the version that gets a request."""
    with process.catalog.lease(Target("m", client=client)) as model:
        return model.version


def shares(process):
    """Return the percent of 1000 requests that each version gets."""
    answers = [version_of(process) for _ in range(1000)]
    return {version: answers.count(version) / 10 for version in set(answers)}
