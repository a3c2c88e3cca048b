"""A model's engine without a server, in a process of its own.

`python -m bench.peers.bare FOLDER ROWS` prints the milliseconds that the version in
FOLDER takes for a batch of ROWS rows.
"""

import sys
from pathlib import Path

from app.commands.measurement import batch_ms
from app.engines import open_engine
from app.settings import Settings
from testing.processes import run_python


def rows_per_second(version: Path, rows: int) -> float:
    """Return the rate of the model in a version folder, from its median batch.

    Raises:
        subprocess.CalledProcessError: the engine cannot run it.
    """
    printed = run_python("-m", "bench.peers.bare", str(version), str(rows))
    return rows * 1000 / float(printed.split()[-1])


if __name__ == "__main__":
    print(batch_ms(open_engine(Path(sys.argv[1]), Settings()), int(sys.argv[2])))
