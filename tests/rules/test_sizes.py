"""No file, function or class outgrows its subject."""

import ast

from rules.source import PRODUCT, TOOLS, files, length

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
MAX_CLASS_LINES = 250
MAX_METHODS = 15


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
