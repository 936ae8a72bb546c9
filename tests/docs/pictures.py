"""Renders docs/pictures/*.dot to SVG with Graphviz, and writes rooms.dot from the import contracts. For `make docs`.

Each picture names the digest of its source, so that a test without Graphviz knows whether it is that of the source.
"""

import ast
import html
import re
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "pictures"
PAGE = FOLDER / "rooms.dot"
_PLACES = {"fogline_edge": "edge", "fogline_cloud": "cloud", "fogline": "shared"}
_COLOURS = {"fogline_edge": "#e8f1fb", "fogline_cloud": "#eef7ea", "fogline": "#fdf3e3"}
_ACROSS = 4
_HEAD = """\
// The rooms: folders of the product in their layers. A layer imports only from those below it. Generated from the contracts in
// pyproject.toml and the first line of each package by `make docs`.
digraph rooms {
    graph [fontname="Helvetica", nodesep=0.3, ranksep=0.3]
    node [shape=plaintext, fontname="Helvetica", fontsize=11]
    edge [style=invis]
"""


def page() -> str:
    """Return the source of the picture of the rooms."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    layers = {container: each["layers"] for each in contracts for container in each.get("containers", ())}
    shown = sorted(_PLACES) + sorted(each for each in layers if each not in _PLACES and _is_room(each))
    tables = "".join(f"    {_node(name)} [label=<{_table(name, layers.get(name, []))}>]\n" for name in shown)
    order = [f"    {_node(name.partition('.')[0])} -> {_node(name)} -> fogline\n" for name in shown if "." in name]
    return f"{_HEAD}{tables}{''.join(order)}    {{fogline_edge fogline_cloud}} -> fogline\n}}\n"


def _node(package: str) -> str:
    return package.replace(".", "_")


def _table(package: str, layers: list[str]) -> str:
    """Return one table: a row for each layer, then the rooms that no layer has."""
    rooms = {path.parent.name for path in _folder(package).glob("*/__init__.py") if path.read_text("utf-8")}
    rows = [[name.strip() for name in re.split(r"[|:]", layer)] for layer in layers]
    rest = sorted(rooms - {name for row in rows for name in row})
    apart = f'<tr><td colspan="{_ACROSS}" border="0"><i>in no layer</i></td></tr>' if layers and rest else ""
    body = f"{_lines(package, rows, rooms)}{apart}{_lines(package, [rest], rooms)}"
    colour = _COLOURS[package.partition(".")[0]]
    head = f'<tr><td bgcolor="{colour}" colspan="{_ACROSS}"><b>{package}</b></td></tr>'
    return f'<table border="1" cellborder="1" cellspacing="4" cellpadding="4" style="rounded">{head}{body}</table>'


def _lines(package: str, rows: list[list[str]], rooms: set[str]) -> str:
    lines = [row[at : at + _ACROSS] for row in rows for at in range(0, len(row), _ACROSS)]
    return "".join(f"<tr>{''.join(_cells(package, line, rooms))}</tr>" for line in lines)


def _cells(package: str, names: list[str], rooms: set[str]) -> Iterator[str]:
    """Yield the cells of a line; the last one fills it."""
    for name in names:
        across = _ACROSS - len(names) + 1 if name == names[-1] else 1
        words = "<br/>".join(html.escape(each) for each in textwrap.wrap(_subject(package, name), across * 34))
        inner = f'<b>{name}</b><br/><font point-size="9">{words}</font>' if name in rooms else f"{name}.py"
        yield f'<td colspan="{across}">{inner}</td>'


def _subject(package: str, room: str) -> str:
    """Return the first line of a room's docstring, without what it refers to."""
    file = _folder(package) / room / "__init__.py"
    text = ast.get_docstring(ast.parse(file.read_text("utf-8"))) if file.exists() else None
    return re.sub(r" \(docs/[^)]*\)", "", (text or "").partition("\n")[0])


def _folder(package: str) -> Path:
    return ROOT / _PLACES[package.partition(".")[0]] / Path(*package.split("."))


def _is_room(package: str) -> bool:
    return package.partition(".")[0] in _PLACES and _folder(package).is_dir()


def digest(source: Path) -> str:
    """Return what the picture of a source names."""
    return f"{source.name}, sha256 {sha256(source.read_bytes()).hexdigest()}"


def render(source: Path) -> None:
    """Write the picture of a source. Raises `FileNotFoundError` without Graphviz."""
    drawn = subprocess.run(["dot", "-Tsvg", source], capture_output=True, text=True, check=True).stdout
    plain = re.sub(r"<!--.*?-->\n?", "", drawn, flags=re.DOTALL)
    source.with_suffix(".svg").write_text(plain.replace("<svg", f"<!-- {digest(source)} -->\n<svg", 1), "utf-8")


def is_current(source: Path) -> bool:
    """Return True if the picture is that of its source."""
    picture = source.with_suffix(".svg")
    return picture.exists() and digest(source) in picture.read_text("utf-8")


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
    try:
        for each in sorted(FOLDER.glob("*.dot")):
            if not is_current(each):
                render(each)
    except FileNotFoundError:
        sys.exit("docs/pictures: Graphviz is missing: apt-get install graphviz")
