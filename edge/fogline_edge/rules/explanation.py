"""What the rules do with an event, step by step: `fogline-edge explain` shows it."""

from typing import NamedTuple


class RuleStep(NamedTuple):
    """What one rule does with an event. `kind`: `private`, `identity`, `reduce` or `react`. `effect`: one sentence."""

    kind: str
    rule: str
    effect: str


MAX_SHOWN = 80


def shown(value: object) -> str:
    """Return a value of a payload for a sentence."""
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
