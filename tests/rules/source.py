"""The project's own Python files, parsed once."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PRODUCT = ("shared/fogline", "edge/fogline_edge", "cloud/fogline_cloud")
TOOLS = ("deploy/lab/fogline_lab", "deploy/demo", "deploy/soak")

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class SourceFile(NamedTuple):
    """One file: its path below the checkout, its text and its syntax tree."""

    path: str
    text: str
    tree: ast.Module

    def definitions(self) -> Iterator[Definition]:
        """All classes, functions and methods of the file, nested ones included."""
        return (node for node in ast.walk(self.tree) if isinstance(node, Definition))


@cache
def every_file() -> tuple[SourceFile, ...]:
    """Return every file of the project."""
    found = (path for folder in (*PRODUCT, *TOOLS, "tests") for path in sorted((ROOT / folder).rglob("*.py")))
    return tuple(SourceFile(str(path.relative_to(ROOT)), (text := path.read_text()), ast.parse(text)) for path in found)


def files(*folders: str) -> tuple[SourceFile, ...]:
    """Return the files below `folders`, or every file of the project."""
    below = tuple(f"{folder}/" for folder in folders)
    return tuple(file for file in every_file() if not below or file.path.startswith(below))


def length(node: Definition) -> int:
    """Return the number of lines of a definition, its docstring included."""
    return (node.end_lineno or node.lineno) - node.lineno + 1
