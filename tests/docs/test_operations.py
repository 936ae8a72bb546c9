"""docs/operations.md quotes log lines that the code writes."""

import re

import pytest

from rules.source import PRODUCT, ROOT

PAGE = (ROOT / "docs" / "operations.md").read_text("utf-8")
LINES = re.findall(r"^\| `([^`]+)` \|", PAGE.partition("## Log lines")[2].partition("\n## ")[0], re.MULTILINE)
CODE = "".join(path.read_text("utf-8") for folder in PRODUCT for path in (ROOT / folder).rglob("*.py"))


def test_there_are_log_lines():
    assert len(LINES) > 5


@pytest.mark.parametrize("line", LINES)
def test_a_quoted_log_line_is_written_by_the_code(line):
    """`...` stands for a value."""
    missing = [part for part in re.split(r"\.\.\.", line) if part.strip(" :;/,") and part.strip() not in CODE]
    assert not missing, f"no code writes {missing}: update docs/operations.md"
