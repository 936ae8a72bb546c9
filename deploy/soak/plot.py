"""A run as one SVG: a panel each for what went through, what waited, and what the processes held. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from xml.sax.saxutils import escape

from soak.flat import Flow, Sample

WIDTH, HEIGHT = 1000, 150
LEFT, RIGHT, TOP, GAP = 70, 130, 40, 34
COLOURS = ("#1b6ca8", "#d1495b", "#2e933c", "#edae49", "#6a4c93", "#00798c", "#8d5524", "#555555")
OURS = ("gateway", "bridge")

Line = Sequence[Sequence[tuple[float, float]]]
"""Pieces of a curve: points (seconds, value) that belong together."""


@dataclass(frozen=True, slots=True)
class Panel:
    """Curves over the same time, by name, with what their values are."""

    title: str
    curves: Mapping[str, Line]


def panels(samples: Sequence[Sample], flow: Sequence[Flow]) -> list[Panel]:
    """What there is to be seen of a run."""
    rates = {
        "acknowledged": [_rates([(each.at_s, each.acknowledged) for each in flow])],
        "in Kafka": [_rates([(each.at_s, each.committed) for each in flow])],
        "in the table": [_rates([(each.at_s, each.rows) for each in flow])],
    }
    waiting = {
        "outboxes": [[(each.at_s, float(each.backlog)) for each in flow]],
        "for the table": [[(each.at_s, float(each.lag)) for each in flow]],
    }
    ours = [each for each in samples if each.part.startswith(OURS)]
    others = [each for each in samples if not each.part.startswith(OURS)]
    return [
        Panel("events a second", rates),
        Panel("events waiting", waiting),
        Panel("resident memory of gateways and bridges, MB", _lives(ours, "rss_mb")),
        Panel("their descriptors", _lives(ours, "descriptors")),
        Panel("their threads", _lives(ours, "threads")),
        Panel("their asyncio tasks", _lives(ours, "tasks")),
        Panel("resident memory of the others, MB", _lives(others, "rss_mb")),
    ]


def draw(title: str, found: Sequence[Panel], marks: Sequence[tuple[float, str]]) -> str:
    """The SVG. `marks`: when what was killed; each part has a colour of its own."""
    drawn = [each for each in found if any(piece for line in each.curves.values() for piece in line)]
    points = [point for each in drawn for line in each.curves.values() for piece in line for point in piece]
    last_s = max([at_s for at_s, _ in points] + [at_s for at_s, _ in marks] + [1.0])
    killed = {f"{sort} killed": COLOURS[index % len(COLOURS)] for index, sort in enumerate(sorted({sort for _, sort in marks}))}
    high = TOP + len(drawn) * (HEIGHT + GAP) + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {high}" font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{high}" fill="white"/>',
        f'<text x="{LEFT}" y="16" font-size="14">{escape(title)}</text>',
        *_legend(killed.items(), across=True),
    ]
    for index, panel in enumerate(drawn):
        parts.append(f'<g transform="translate(0 {TOP + index * (HEIGHT + GAP)})">')
        parts += _panel(panel, last_s, [(at_s, killed[f"{sort} killed"]) for at_s, sort in marks])
        parts.append("</g>")
    return "\n".join([*parts, "</svg>", ""])


def _panel(panel: Panel, last_s: float, marks: Iterable[tuple[float, str]]) -> list[str]:
    values = [value for line in panel.curves.values() for piece in line for _, value in piece]
    top = max([*values, 1.0]) * 1.05
    bottom = 20 + HEIGHT - 20

    def x(at_s: float) -> str:
        return f"{LEFT + at_s / last_s * (WIDTH - LEFT - RIGHT):.1f}"

    def y(value: float) -> str:
        return f"{bottom - max(0.0, value) / top * (HEIGHT - 20):.1f}"

    parts = [f'<text x="{LEFT}" y="14" font-weight="bold">{escape(panel.title)}</text>']
    parts += [
        f'<line x1="{x(at_s)}" y1="20" x2="{x(at_s)}" y2="{bottom}" stroke="{colour}" stroke-width="0.7" opacity="0.5"/>'
        for at_s, colour in marks
    ]
    for share in (0.0, 0.5, 1.0):
        value = share * top / 1.05
        parts.append(f'<line x1="{LEFT}" y1="{y(value)}" x2="{WIDTH - RIGHT}" y2="{y(value)}" stroke="#dddddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y(value)}" text-anchor="end">{value:,.0f}</text>')
    for minute in _ticks(last_s / 60):
        parts.append(f'<text x="{x(minute * 60)}" y="{bottom + 12}" text-anchor="middle">{minute:g} min</text>')
    named = dict(zip(panel.curves, COLOURS * 4, strict=False))
    for name, line in panel.curves.items():
        for piece in line:
            way = " ".join(f"{x(at_s)},{y(value)}" for at_s, value in piece)
            parts.append(f'<polyline points="{way}" fill="none" stroke="{named[name]}" stroke-width="1.3"/>')
    return [*parts, *_legend(named.items())]


def _legend(named: Iterable[tuple[str, str]], *, across: bool = False) -> list[str]:
    places = (f'x="{LEFT + 110 * n}" y="30"' if across else f'x="{WIDTH - RIGHT + 8}" y="{30 + 13 * n}"' for n in range(100))
    return [
        f'<text {place} fill="{colour}">{escape(name)}</text>' for place, (name, colour) in zip(places, named, strict=False)
    ]


def _ticks(minutes: float) -> list[float]:
    step = next((each for each in (0.5, 1, 2, 5, 10, 20, 60) if minutes / each <= 8), 120)
    return [step * n for n in range(int(minutes / step) + 1)]


def _rates(totals: Sequence[tuple[float, int]]) -> list[tuple[float, float]]:
    return [(now_s, (now - then) / (now_s - then_s)) for (then_s, then), (now_s, now) in pairwise(totals) if now_s > then_s]


def _lives(samples: Sequence[Sample], name: str) -> dict[str, Line]:
    """A curve a part, a piece a life."""
    curves: dict[str, Line] = {}
    for part in dict.fromkeys(each.part for each in samples):
        own = [each for each in samples if each.part == part and getattr(each, name) is not None]
        lives = groupby(own, lambda each: each.life)
        curves[part] = [[(each.at_s, float(getattr(each, name))) for each in life] for _, life in lives]
    return {part: line for part, line in curves.items() if line}
