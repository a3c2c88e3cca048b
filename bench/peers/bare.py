"""A model's engine without a server, in a process of its own.

`python -m bench.peers.bare FOLDER ROWS` prints the milliseconds that the version in
FOLDER takes for a batch of ROWS rows.
"""

import subprocess
import sys
from pathlib import Path

from testing.server import ROOT


def rows_per_second(version: Path, rows: int) -> float:
    """Return the rate of the model in a version folder, from its median batch.

    Raises:
        subprocess.CalledProcessError: the engine cannot run it.
    """
    command = [sys.executable, "-m", "bench.peers.bare", str(version), str(rows)]
    ran = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)  # noqa: S603
    return rows * 1000 / float(ran.stdout.split()[-1])


def main(folder: str, rows: str) -> None:
    """Measure, and print the milliseconds."""
    # TensorFlow, in the child only.
    from app.commands.measurement import batch_ms  # noqa: PLC0415
    from app.engines import open_engine  # noqa: PLC0415
    from app.settings import Settings  # noqa: PLC0415

    print(batch_ms(open_engine(Path(folder), Settings()), int(rows)))


if __name__ == "__main__":
    main(*sys.argv[1:])
