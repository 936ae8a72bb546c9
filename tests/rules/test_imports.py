"""Tests share plain modules and `fogline_lab`: none imports another test, or a conftest."""

import ast
import re
from collections.abc import Iterator

from rules.source import files

TEST_OR_CONFTEST = re.compile(r"\b(?:test_\w+|conftest)\b")
IMPORT_IN_TEXT = re.compile(r"^[ \t]*(?:from ([\w.]+) )?import ([\w., ]+)", re.MULTILINE)
"""An import in a program that a test keeps as a string."""


def names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Return each imported module, and each imported name with its module; also those in strings."""
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                yield from ((node.lineno, each.name) for each in node.names)
            case ast.ImportFrom():
                yield from ((node.lineno, f"{node.module or ''}.{each.name}") for each in node.names)
            case ast.Constant(value=str() as text):
                for module, imported in IMPORT_IN_TEXT.findall(text):
                    yield from ((node.lineno, f"{module}.{each.split()[0]}") for each in imported.split(",") if each.strip())


def modules_of_tests() -> set[str]:
    """Return the names of all modules that pytest collects, without their folders."""
    found = {file.path.rpartition("/")[2].removesuffix(".py") for file in files("tests")}
    return {name for name in found if TEST_OR_CONFTEST.fullmatch(name)}


def test_no_module_imports_a_test_or_a_conftest():
    forbidden = modules_of_tests()
    wrong = [
        f"{file.path}:{line}: {name.lstrip('.')}"
        for file in files()
        if forbidden & set(TEST_OR_CONFTEST.findall(file.text))
        for line, name in names(file.tree)
        if forbidden & set(name.split("."))
    ]
    assert not wrong, "move what they share into a plain module, or into fogline_lab:\n" + "\n".join(wrong)
