"""Modules that a distribution imports: its own, Python's, and those of declared dependencies, its own or those of `fogline`.

A dependency of a dependency is in the development environment too, but perhaps not where only this distribution is installed.
"""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DISTRIBUTIONS = {"shared": "fogline", "edge": "fogline_edge", "cloud": "fogline_cloud"}
OF_SPARK = {"py4j"}
"""Every version of PySpark brings its own."""


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def declared(folder: Path) -> set[str]:
    """Return the names of the dependencies, those of extras too."""
    project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    extras = [each for extra in project.get("optional-dependencies", {}).values() for each in extra]
    return {normal(re.match(r"[\w.-]+", each)[0]) for each in [*project["dependencies"], *extras]}


def imported(package: Path) -> dict[str, Path]:
    """Return the top-level modules that a package imports, each with a file that does."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                found |= {each.name.partition(".")[0]: path for each in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                found[node.module.partition(".")[0]] = path
    return found


@pytest.mark.parametrize("folder", DISTRIBUTIONS)
def test_every_import_is_declared(folder):
    names, of_module = declared(ROOT / folder) | declared(ROOT / "shared"), packages_distributions()
    own = {*DISTRIBUTIONS.values(), *OF_SPARK, *sys.stdlib_module_names}
    undeclared = {
        module: str(path.relative_to(ROOT))
        for module, path in imported(ROOT / folder / DISTRIBUTIONS[folder]).items()
        if module not in own and not names & {normal(each) for each in of_module.get(module, [module])}
    }
    assert not undeclared
