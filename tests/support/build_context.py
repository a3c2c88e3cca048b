"""Reads .dockerignore as an image builder does, without one."""

import re
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]
_SPECIAL = re.compile(r"(\*\*/|\*\*|\*)")
_REGEX = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*"}


def in_build_context(path: str) -> bool:
    """Return whether the build context has a file of the repository.

    The last line that matches the path or one of its folders decides.
    """
    names = [path, *map(str, PurePosixPath(path).parents)][:-1]
    included = True
    for line in (ROOT / ".dockerignore").read_text().split():
        pattern = _pattern(line.removeprefix("!"))
        if any(pattern.fullmatch(name) for name in names):
            included = line.startswith("!")
    return included


def _pattern(line: str) -> re.Pattern[str]:
    parts = _SPECIAL.split(line)
    return re.compile("".join(_REGEX.get(part, re.escape(part)) for part in parts))
