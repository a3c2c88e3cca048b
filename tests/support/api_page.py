"""The script, the commands and the answers of docs/api.md."""

import itertools
import re
from dataclasses import dataclass
from pathlib import Path

from testing.server import ROOT
from tests.support import documents

_PAGE = ROOT / "docs" / "api.md"
_FENCES = re.findall(r"^```(\w+)\n(.*?)^```$", _PAGE.read_text(), re.M | re.S)


@dataclass
class Example:
    """A command and its answer: JSON, HTTP with headers, or lines of text."""

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
    """Run the page's script beside the demo model; return the folder of models."""
    (folder / "models").mkdir()
    (folder / "models" / "digits").symlink_to(ROOT / "models" / "digits")
    (folder / "till.py").write_text(documents.blocks(_PAGE, "python")[0])
    documents.run("python till.py", cwd=folder)
    return str(folder / "models")
