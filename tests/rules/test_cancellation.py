"""No code of the product can lose a cancellation: a process that is told to stop stops (`fogline.process.cancellation`)."""

import ast

from rules.source import PRODUCT, SourceFile, files

CANCELLED = {"CancelledError", "BaseException", "BaseExceptionGroup"}


def names(node: ast.AST | None) -> set[str]:
    """Return the last parts of all names in an expression."""
    found = list(ast.walk(node)) if node is not None else []
    return {each.id for each in found if isinstance(each, ast.Name)} | {
        each.attr for each in found if isinstance(each, ast.Attribute)
    }


def is_call(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and name in names(node.func)


def calls(node: ast.AST, name: str) -> bool:
    return any(is_call(each, name) for each in ast.walk(node))


def where(file: SourceFile, node: ast.AST) -> str:
    return f"{file.path}:{getattr(node, 'lineno', 0)}"


def test_no_wait_for_whose_result_replaces_a_cancellation():
    found = [
        where(file, node)
        for file in files(*PRODUCT)
        for node in ast.walk(file.tree)
        if is_call(node, "wait_for") and "asyncio" in names(getattr(node, "func", None))
    ]
    assert found == [], "use asyncio.timeout"


def test_a_cancellation_is_caught_only_to_be_raised_again():
    found = []
    for file in [each for each in files(*PRODUCT) if "import asyncio" in each.text]:
        for node in ast.walk(file.tree):
            if is_call(node, "suppress") and CANCELLED & names(node):
                found.append(where(file, node))
            elif isinstance(node, ast.ExceptHandler) and (node.type is None or CANCELLED & names(node.type)):
                last = node.body[-1]
                if not isinstance(last, ast.Raise):
                    found.append(where(file, node))
    assert found == [], "end the handler with `raise`"


def test_handlers_of_task_group_errors_check_for_cancellation():
    found = [
        where(file, node)
        for file in files(*PRODUCT)
        for node in file.definitions()
        if any(isinstance(each, ast.TryStar) for each in ast.walk(node)) and not calls(node, "raise_if_cancelled")
    ]
    assert found == [], "call raise_if_cancelled after `except*`"


def test_errors_of_a_task_group_are_caught_by_no_plain_except():
    found = [
        where(file, node)
        for file in files(*PRODUCT)
        for node in ast.walk(file.tree)
        if isinstance(node, ast.ExceptHandler) and "ExceptionGroup" in names(node.type)
    ]
    assert found == [], "use `except*`, and call raise_if_cancelled"
