"""Names of the files in which prometheus_client counts."""

import re
from pathlib import Path


def is_metrics_file(file: Path) -> bool:
    """Return whether prometheus_client writes a file, by its name.

    A folder that the user has set may hold other databases.
    """
    kinds = "counter|histogram|summary|gauge_[a-z]+"
    return bool(re.fullmatch(rf"({kinds})_([0-9]+|dead)\.db", file.name))
