"""The Markdown pages of the repository: links, tables, code and commands."""

import ast
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")],
    key=lambda page: page.relative_to(ROOT),
)
_FENCE = re.compile(r"^```.*?^```$", re.M | re.S)
# [text](target), also around an image.
_LINK = re.compile(r"\]\(([^()\s]+)\)")
_SYMBOL_LINK = re.compile(r"\[`([\w.]+)`\]\(([^()\s]+\.py)\)")
_PATH = re.compile(r"`((?:app|bench|deploy|testing|tests)/[\w./]+)`")


def name(page: Path) -> str:
    """Return a page's path in the repository."""
    return str(page.relative_to(ROOT))


def prose(page: Path) -> str:
    """Return a page without its code blocks."""
    return _FENCE.sub("", page.read_text())


def blocks(page: Path, language: str) -> list[str]:
    """Return the code blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.M | re.S)


def links(page: Path) -> list[str]:
    """Return the targets of all links that stay in the repository."""
    found = _LINK.findall(prose(page))
    return [each for each in found if not each.startswith(("https://", "http://"))]


@cache
def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.M)
    found: set[str] = set()
    for heading in headings:
        anchor = re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-")
        # The second heading of a name.
        found.add(f"{anchor}-1" if anchor in found else anchor)
    return found


def paths(page: Path) -> list[str]:
    """Return the paths in backticks."""
    return _PATH.findall(prose(page))


def symbol_links(page: Path) -> list[tuple[str, Path]]:
    """Return each link whose text is code: its name, and the Python file."""
    found = _SYMBOL_LINK.findall(prose(page))
    return [(symbol, (page.parent / path).resolve()) for symbol, path in found]


@cache
def parsed(file: Path) -> ast.Module:
    """Return the syntax tree of a Python file."""
    return ast.parse(file.read_text())


@cache
def symbols(file: Path) -> set[str]:
    """Return the qualified names of all that a Python file defines."""
    found: set[str] = set()

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.add(f"{prefix}{child.name}")
                visit(child, f"{prefix}{child.name}.")
            elif isinstance(child, ast.Assign):
                found.update(f"{prefix}{ast.unparse(each)}" for each in child.targets)
            elif isinstance(child, ast.AnnAssign):
                found.add(f"{prefix}{ast.unparse(child.target)}")

    visit(parsed(file), "")
    return found


@cache
def rows(page: Path) -> list[list[str]]:
    """Return the cells of all table rows, headers included."""
    lines = re.findall(r"^\| (.*) \|$", prose(page), re.M)
    return [re.split(r" *(?<!\\)\| *", line) for line in lines]


def commands(page: Path) -> list[str]:
    """Return the commands of a page: what follows `$ ` in its console blocks."""
    return re.findall(r"^\$ (.*)$", "".join(blocks(page, "console")), re.M)


def run(command: str, port: int = 0, cwd: Path = ROOT, **settings: str) -> str:
    """Run a command of a page against a server on a port; return what it prints."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith("BASKET_")}
    binaries = Path(sys.executable).parent
    environ |= {"no_proxy": "*", "PATH": f"{binaries}:{environ['PATH']}"}
    for shown, real in (
        ("127.0.0.1:8000", f"127.0.0.1:{port}"),
        (".venv/bin", str(binaries)),
        ("curl ", "curl --silent --show-error "),
    ):
        command = command.replace(shown, real)
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=cwd,
        env=environ | settings,
        stdout=subprocess.PIPE,
        text=True,
        timeout=280,
        check=True,
    ).stdout
