"""Scans of tables need no Python in the threads of Arrow (`TableFolder.for_scans`): a late one aborts a process at its end."""

import ast
import re

from rules.source import PRODUCT, ROOT, files

OF_TABLES = {"to_pyarrow_dataset", "to_pyarrow_table"}
OF_MODULES = {("pq", "read_table"), ("ds", "dataset"), ("pads", "dataset")}
WITHOUT_FILES = re.compile(r"DeltaTable\([^)]*\)\.(?:to_pandas|to_pyarrow_\w+)\((?![^)]*filesystem)")


def is_scan(node: ast.AST) -> bool:
    """Return True for a call of delta-rs or Arrow that reads many files or columns at once."""
    match node:
        case ast.Call(func=ast.Attribute(attr=name)) if name in OF_TABLES:
            return True
        case ast.Call(func=ast.Attribute(attr=name, value=ast.Name(id=module))):
            return (module, name) in OF_MODULES
    return False


def test_product_scans_tables_without_python():
    scans = [(file.path, node) for file in files(*PRODUCT) for node in ast.walk(file.tree) if is_scan(node)]
    assert len(scans) > 5
    found = [f"{path}:{node.lineno}" for path, node in scans if "for_scans(" not in ast.unparse(node)]
    assert not found, "give filesystem=folder.for_scans():\n" + "\n".join(found)


def test_programs_to_copy_scan_tables_without_python():
    documents = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "docs").rglob("*.ipynb")]
    found = [f"{path.name}: {each}" for path in documents for each in WITHOUT_FILES.findall(path.read_text("utf-8"))]
    assert not found, "use QueryBuilder, or give a file system:\n" + "\n".join(found)
