"""docs/decisions/README.md lists every decision under a question that its title answers."""

import re

from rules.source import ROOT


def test_the_index_of_decisions_has_each_with_its_title():
    folder = ROOT / "docs" / "decisions"
    rows = re.findall(r"^\| .*\? .*\| \[(.*)\]\((.*)\) \|$", (folder / "README.md").read_text("utf-8"), re.MULTILINE)
    titles = {path.name: path.read_text("utf-8").partition("\n")[0].removeprefix("# ") for path in folder.glob("[0-9]*.md")}
    assert {name: title for title, name in rows} == titles
    assert len(rows) == len(titles)
