"""docs/index.md leads each reader to every guide, in few steps, with commands that exist."""

import re
import shlex

import pytest

from rules.source import ROOT

PAGE = ROOT / "docs" / "index.md"
TEXT = PAGE.read_text("utf-8")
READERS = ["Installer", "Operator", "Data engineer", "Administrator", "Developer"]
MAX_STEPS = 5
MAX_WORDS = 250
TYPED = [
    line.strip() for block in re.findall(r"^ *```\n(.*?)^ *```$", TEXT, re.MULTILINE | re.DOTALL) for line in block.splitlines()
]


@pytest.mark.parametrize("reader", READERS)
def test_path_of_a_reader_names_its_result_and_has_few_steps(reader):
    path = TEXT.partition(f"\n## {reader}\n")[2].partition("\n## ")[0]
    assert path.strip().startswith("At the end ")
    steps = re.split(r"^\d\. ", path, flags=re.MULTILINE)[1:]
    assert 0 < len(steps) <= MAX_STEPS
    assert all("](" in step or "```" in step for step in steps)
    assert len(path.split()) <= MAX_WORDS


def test_every_page_of_docs_is_reached_from_the_index():
    linked = {(PAGE.parent / link).resolve() for link in re.findall(r"\]\(([^)#]+)", TEXT)}
    pages = [*PAGE.parent.glob("*.md"), *(PAGE.parent / "reference").glob("*.md"), *(PAGE.parent / "proofs").glob("*.md")]
    pages += (PAGE.parent / "development").glob("*.md")
    assert [each.name for each in pages if each != PAGE and each not in linked] == []


def test_the_targets_of_make_and_the_code_of_the_paths_exist():
    """The commands `fogline` and `fogline-edge` are parsed with those of all pages (test_documented_commands)."""
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    words = [shlex.split(line) for line in TYPED]
    made = [each[1] for each in words if each[0] == "make"]
    assert made
    assert set(made) <= set(targets)
    assert [compile(each[2], PAGE.name, "exec") for each in words if each[:2] == ["python", "-c"]]
    assert (ROOT / "deploy" / "packages" / "install.sh").exists()
