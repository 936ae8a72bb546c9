"""Each package's docstring names its modules, one line each."""

import ast
import re

from rules.source import PRODUCT, ROOT, TOOLS, files

LISTED = re.compile(r"^`(\w+)`: \S", re.MULTILINE)


def test_each_package_lists_its_modules():
    wrong = []
    for file in files(*PRODUCT, *TOOLS):
        if not file.path.endswith("/__init__.py"):
            continue
        folder = (ROOT / file.path).parent
        modules = {path.stem for path in folder.glob("*.py")} - {"__init__", "__main__"}
        modules |= {path.parent.name for path in folder.glob("*/__init__.py")}
        listed = LISTED.findall(ast.get_docstring(file.tree) or "")
        if sorted(listed) != sorted(modules):
            wrong.append(
                f"{file.path}: not listed {sorted(modules - set(listed))}, no such module {sorted(set(listed) - modules)}"
            )
    assert not wrong, "\n".join(wrong)
