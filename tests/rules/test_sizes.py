"""No file, function, class or room outgrows its subject."""

import ast
from collections import Counter, defaultdict
from pathlib import PurePath

from rules.source import PRODUCT, TOOLS, files, length

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
MAX_CLASS_LINES = 250
MAX_METHODS = 15
MAX_PARAMETERS = 8
MAX_FILES = 20
MAX_DOORS = 12
LIBRARIES = ("shared/fogline",)
"""Packages for every process: each of their modules is there to be imported."""


def test_no_file_is_longer_than_400_lines():
    long = [f"{file.path}: {count} lines" for file in files() if (count := file.text.count("\n")) > MAX_FILE_LINES]
    assert not long, "split them by subject:\n" + "\n".join(long)


def test_no_function_is_longer_than_60_lines():
    long = [
        f"{file.path}:{node.lineno} {node.name}: {length(node)} lines"
        for file in files()
        for node in file.definitions()
        if not isinstance(node, ast.ClassDef) and length(node) > MAX_FUNCTION_LINES
    ]
    assert not long, "split them by subject:\n" + "\n".join(long)


def test_no_class_has_more_than_250_lines_or_15_methods():
    long = []
    for file in files(*PRODUCT, *TOOLS):
        for node in file.definitions():
            if isinstance(node, ast.ClassDef):
                methods = sum(isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) for item in node.body)
                if length(node) > MAX_CLASS_LINES or methods > MAX_METHODS:
                    long.append(f"{file.path}:{node.lineno} {node.name}: {length(node)} lines, {methods} methods")
    assert not long, "split them by subject:\n" + "\n".join(long)


def test_no_constructor_has_more_than_8_parameters():
    long = [
        f"{file.path}:{node.lineno} {node.name}: {count} parameters"
        for file in files(*PRODUCT)
        for node in file.definitions()
        if isinstance(node, ast.ClassDef)
        for item in node.body
        if isinstance(item, ast.FunctionDef) and item.name == "__init__"
        if (count := len(item.args.posonlyargs + item.args.args + item.args.kwonlyargs) - 1) > MAX_PARAMETERS
    ]
    assert not long, "a class with so many collaborators has two subjects:\n" + "\n".join(long)


def test_no_room_has_more_than_20_files():
    rooms = Counter(str(PurePath(file.path).parent) for file in files(*PRODUCT) if not file.path.endswith("__init__.py"))
    large = [f"{room}: {count} files" for room, count in rooms.items() if count > MAX_FILES]
    assert not large, "divide them into rooms with one subject each:\n" + "\n".join(large)


def test_no_room_has_more_than_12_doors():
    """A door is a module that a module outside the room imports."""
    modules = {_module(file.path): file for file in files(*PRODUCT)}
    doors: defaultdict[str, set[str]] = defaultdict(set)
    for file in modules.values():
        for name in _imported(file.tree) & modules.keys():
            room = str(PurePath(modules[name].path).parent)
            if not file.path.startswith(f"{room}/"):
                doors[room].add(name.rpartition(".")[2])
    many = [f"{room}: {sorted(names)}" for room, names in doors.items() if len(names) > MAX_DOORS]
    many = [each for each in many if not each.startswith(LIBRARIES)]
    assert not many, "what is used together belongs together:\n" + "\n".join(many)


def _module(path: str) -> str:
    return ".".join(PurePath(path).with_suffix("").parts[1:])


def _imported(tree: ast.Module) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
        elif isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
    return found
