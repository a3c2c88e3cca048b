"""docs/api.md as a reader uses it: its script, its commands, and their answers."""

import itertools
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from testing.server import ROOT

_PAGE = (ROOT / "docs" / "api.md").read_text()
_FENCES = re.findall(r"^```(\w+)\n(.*?)^```$", _PAGE, re.M | re.S)


@dataclass
class Example:
    """A command and what follows it: JSON, HTTP with headers, or lines of text."""

    command: str
    kind: str
    answer: str

    def method(self) -> str:
        named = re.search(r" -X ([A-Z]+) ", self.command)
        if named:
            return named[1]
        return "POST" if re.search(r" (-d|-F|--data\S*) ", self.command) else "GET"

    def path(self) -> str:
        (path,) = re.findall(r"http://127\.0\.0\.1:8000([^\s'\"?]*)", self.command)
        return path


EXAMPLES = [
    Example(text.removeprefix("$ ").rstrip(), *after)
    for (kind, text), after in itertools.pairwise([*_FENCES, ("end", "")])
    if kind == "console"
]


def make_models(folder: Path) -> str:
    """Run the page's script in a folder that has the demo model; the models' folder."""
    (folder / "models").mkdir()
    (folder / "models" / "digits").symlink_to(ROOT / "models" / "digits")
    (script,) = [text for kind, text in _FENCES if kind == "python"]
    subprocess.run(
        [sys.executable, "-c", script], cwd=folder, check=True, capture_output=True
    )
    return str(folder / "models")


def run(command: str, port: int) -> str:
    """What a command prints, run where the repository is."""
    for shown, real in (
        ("127.0.0.1:8000", f"127.0.0.1:{port}"),
        (".venv/bin/python", sys.executable),
        ("curl ", "curl --silent --show-error "),
    ):
        command = command.replace(shown, real)
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=ROOT,
        env=os.environ | {"no_proxy": "*"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
