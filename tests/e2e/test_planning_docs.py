"""The commands of docs/planning.md that need no model print what the page shows."""

import re

import pytest

from tests.support import documents
from tests.support.documents import ROOT

PAGE = ROOT / "docs" / "planning.md"
# A command, and what the page shows below it; the third takes half a minute.
BLOCKS = re.findall(
    r"^```console\n\$ ([^\n]*--base-ms[^\n]*)\n```\n\n```\n(.*?)^```$",
    PAGE.read_text(),
    re.M | re.S,
)[:2]


@pytest.mark.parametrize(("command", "shown"), BLOCKS, ids=["users", "article"])
def test_plan_prints_what_the_page_shows(command, shown, tmp_path):
    """The same arguments give the same plan; dots at the end stand for the rest."""
    printed = documents.run(command.replace("docs/", f"{tmp_path}/")).strip("\n")
    head, dots, _ = shown.partition("...\n")
    assert printed.startswith(head) if dots else f"{printed}\n" == head
    assert "--plot" not in command or (tmp_path / "planning.png").stat().st_size
