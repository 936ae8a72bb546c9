"""ARCHITECTURE.md and docs/development name functions, classes and modules that exist."""

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "ARCHITECTURE.md", ROOT / "docs" / "development.md", *sorted((ROOT / "docs" / "development").glob("*.md"))]
TEXT = "".join(page.read_text("utf-8") for page in PAGES)
TOPICS = {"fogline.commands", "fogline.parsers"}
NAMED = sorted(set(re.findall(r"`(fogline(?:_edge|_cloud|_lab)?(?:\.\w+)+)`", TEXT)) - TOPICS)


@pytest.mark.parametrize("name", NAMED)
def test_a_name_in_the_architecture_exists(name):
    parts = name.split(".")
    found = import_module(parts[0])
    for index, part in enumerate(parts[1:], 2):
        found = getattr(found, part, None) or import_module(".".join(parts[:index]))
