"""The commands that messages, help and documents name are commands that exist."""

import argparse
import ast
import re

import pytest

from docs.command_parsers import PARSERS
from rules.source import PRODUCT, ROOT, files

NAMED = re.compile(r"(?<![\w./-])(fogline(?:-edge)?) ([a-z]+)(?: ([a-z][a-z-]*))?(?: ([a-z][a-z-]*))?")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def choices(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    return next((each.choices for each in parser._actions if isinstance(each, argparse._SubParsersAction)), {})


def unknown(text: str) -> list[str]:
    """Return what looks like a command of a known group, and is none."""
    found = []
    for program, *words in NAMED.findall(text):
        parser = next(each for each in PARSERS if each.prog == program)
        if words[0] not in choices(parser):
            continue  # prose, or another program
        for word in words:
            if word and choices(parser):
                if word not in choices(parser):
                    found.append(f"{program} {' '.join(words)}".strip())
                    break
                parser = choices(parser)[word]
    return found


def test_every_command_that_a_message_names_exists():
    found = []
    for file in files(*PRODUCT):
        for node in ast.walk(file.tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found += [f"{file.path}:{node.lineno}: {each}" for each in unknown(node.value)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_that_a_page_names_exists(page):
    assert unknown(page.read_text("utf-8")) == []
