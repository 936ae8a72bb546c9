"""Command lines print through one module, which escapes what devices and peers have written."""

import ast

from rules.source import files

COMMAND_LINES = ("cloud/fogline_cloud/cli", "edge/fogline_edge/cli.py", "shared/fogline/process/console/command_line.py")
COMMAND_LINES += ("shared/fogline/process/checkup.py",)
STREAMS = {"stdout", "stderr"}


def prints(node: ast.AST) -> bool:
    """Return True for a call of `print`, or of a method `write` of a standard stream, but for a fixed text."""
    if isinstance(node, ast.Call) and all(isinstance(each, ast.Constant) for each in node.args):
        return False
    match node:
        case ast.Call(func=ast.Name(id="print")):
            return True
        case ast.Call(func=ast.Attribute(attr="write", value=ast.Attribute(attr=stream))):
            return stream in STREAMS
    return False


def test_command_lines_print_through_fogline_process_terminal_alone():
    own = [file for file in files("cloud", "edge", "shared") if file.path.startswith(COMMAND_LINES)]
    assert len(own) > 20
    found = [f"{file.path}:{node.lineno}" for file in own for node in ast.walk(file.tree) if prints(node)]
    assert not found, "call show, tell, show_body or show_progress of fogline.process.console.terminal:\n" + "\n".join(found)
