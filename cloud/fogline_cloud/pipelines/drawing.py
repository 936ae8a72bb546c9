"""Draws the graph of a pipeline, as SVG and as Mermaid. Pure.

Each dataset is right of what it reads. A thick line is read as a stream, a thin one as a whole.
"""

from collections.abc import Mapping, Sequence
from html import escape

import msgspec

from fogline_cloud.pipelines.graph import DatasetKind, DatasetRead, Graph

_SOURCE = "source"
_WIDTH, _HEIGHT, _GAP_X, _GAP_Y, _EDGE = 220, 58, 70, 22, 12
_FILL = {
    _SOURCE: "#fdf3e3",
    DatasetKind.STREAM: "#e8f1fb",
    DatasetKind.MATERIALIZED: "#eef7ea",
    DatasetKind.VIEW: "#ffffff",
    DatasetKind.SINK: "#f4eafb",
}
_SHAPES = {_SOURCE: ('[("', '")]'), DatasetKind.VIEW: ('(["', '"])')}
"""Mermaid's brackets of a node; those of a table are plain."""
_LONGEST = 30  # characters of a name in a box


class TableFacts(msgspec.Struct, frozen=True):
    """What is known of a table that has run. `behind`: how far it is behind its sources, in words."""

    rows: int
    behind: str


class _Box(msgspec.Struct, frozen=True):
    name: str
    kind: str
    lines: tuple[str, ...]
    column: int


def mermaid(graph: Graph, facts: Mapping[str, TableFacts]) -> str:
    """Return the graph as a Mermaid flowchart, which Markdown pages show."""
    boxes = _boxes(graph, facts)
    number = {box.name: f"n{at}" for at, box in enumerate(boxes)}
    lines = ["flowchart LR"]
    for box in boxes:
        text = "<br/>".join(escape(each, quote=True).replace("#", "&num;") for each in (box.name, *box.lines))
        before, after = (
            ('[("', '")]') if box.kind == _SOURCE else ('(["', '"])') if box.kind == DatasetKind.VIEW else ('["', '"]')
        )
        lines.append(f"    {number[box.name]}{before}{text}{after}")
    lines += [f"    {number[read.name]} {'==>' if read.streaming else '-->'} {number[name]}" for name, read in _edges(graph)]
    return "\n".join(lines) + "\n"


def svg(graph: Graph, facts: Mapping[str, TableFacts]) -> str:
    """Return the graph as an SVG document."""
    columns = _columns(graph, _boxes(graph, facts))
    tallest = max((len(each) for each in columns), default=0)
    width = len(columns) * (_WIDTH + _GAP_X) - _GAP_X + 2 * _EDGE
    height = tallest * (_HEIGHT + _GAP_Y) - _GAP_Y + 2 * _EDGE
    places: dict[str, tuple[float, float]] = {}
    for at, column in enumerate(columns):
        top = (height - len(column) * (_HEIGHT + _GAP_Y) + _GAP_Y) / 2
        for row, box in enumerate(column):
            places[box.name] = (_EDGE + at * (_WIDTH + _GAP_X), top + row * (_HEIGHT + _GAP_Y))
    parts = [_line(places[read.name], places[name], read) for name, read in _edges(graph)]
    parts += [_box(box, *places[box.name]) for column in columns for box in column]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="Helvetica, Arial, sans-serif">\n'
        '<defs><marker id="end" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" '
        'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#555"/></marker></defs>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _edges(graph: Graph) -> list[tuple[str, DatasetRead]]:
    return [(each.name, read) for each in graph.datasets for read in each.reads]


def _boxes(graph: Graph, facts: Mapping[str, TableFacts]) -> list[_Box]:
    depths = _depths(graph)
    boxes = [_Box(name, _SOURCE, (), depths[name]) for name in graph.sources]
    for each in graph.datasets:
        known = facts.get(each.name)
        lines = (str(each.kind),) if known is None else (str(each.kind), f"{known.rows:,} rows, {known.behind}")
        boxes.append(_Box(each.name, each.kind, lines, depths[each.name]))
    return boxes


def _depths(graph: Graph) -> dict[str, int]:
    """Return the column of each: right of all that it reads. A source is just left of what reads it. Spark refuses circles."""
    found = dict.fromkeys(graph.sources, 0)
    ahead = list(graph.datasets)
    while ahead:
        ready = [each for each in ahead if all(read.name in found for read in each.reads)] or ahead[:1]
        for each in ready:
            found[each.name] = 1 + max((found.get(read.name, 0) for read in each.reads), default=-1)
        ahead = [each for each in ahead if each.name not in found]
    nearest = {source: min(found[name] for name, read in _edges(graph) if read.name == source) - 1 for source in graph.sources}
    return found | nearest


def _columns(graph: Graph, boxes: Sequence[_Box]) -> list[list[_Box]]:
    """Return the boxes of each column, top down: those that read the same are neighbours, so that few lines cross."""
    columns: list[list[_Box]] = [[] for _ in range(max((each.column for each in boxes), default=-1) + 1)]
    for box in boxes:
        columns[box.column].append(box)
    rows: dict[str, float] = {}
    for column in columns:
        column.sort(key=lambda box: (_middle(graph, box.name, rows), box.name))
        rows |= {box.name: (at + 0.5) / len(column) for at, box in enumerate(column)}
    return columns


def _middle(graph: Graph, name: str, rows: Mapping[str, float]) -> float:
    dataset = graph.find(name)
    known = [rows[read.name] for read in dataset.reads if read.name in rows] if dataset is not None else []
    return sum(known) / len(known) if known else 0.0


def _line(start: tuple[float, float], end: tuple[float, float], read: DatasetRead) -> str:
    x1, y1, x2, y2 = start[0] + _WIDTH, start[1] + _HEIGHT / 2, end[0], end[1] + _HEIGHT / 2
    bend = (x2 - x1) / 2
    thick = 3 if read.streaming else 1
    path = f"M{x1:g} {y1:g} C{x1 + bend:g} {y1:g} {x2 - bend:g} {y2:g} {x2:g} {y2:g}"
    return f'<path d="{path}" fill="none" stroke="#555" stroke-width="{thick}" marker-end="url(#end)"/>'


def _box(box: _Box, x: float, y: float) -> str:
    dashed = ' stroke-dasharray="4 3"' if box.kind == DatasetKind.VIEW else ""
    lines = [f'<tspan font-weight="bold">{escape(_short(box.name))}</tspan>', *(escape(each) for each in box.lines)]
    first = y + _HEIGHT / 2 + 5 - 8 * (len(lines) - 1)
    middle = f'x="{x + _WIDTH / 2:g}" text-anchor="middle"'
    texts = "".join(
        f'<text {middle} y="{first + 16 * at:g}" font-size="{11 if at else 13}">{line}</text>' for at, line in enumerate(lines)
    )
    title = f"<title>{escape(box.name)}</title>"
    shape = (
        f'<rect x="{x:g}" y="{y:g}" width="{_WIDTH}" height="{_HEIGHT}" rx="6" fill="{_FILL[box.kind]}" stroke="#555"{dashed}/>'
    )
    return f"<g>{title}{shape}{texts}</g>"


def _short(name: str) -> str:
    """Return the end of a name that is too long: of a path, that is what tells it from others."""
    return name if len(name) <= _LONGEST else f"…{name[1 - _LONGEST :]}"
