"""The cost of rules: the gateway with 20 of them over 100 devices, beside the same without any, one after the other.

Each device is under two rules, so that each event passes two. None keeps an event back: the peer gets the same events.
"""

from dataclasses import replace

from gateway import through
from gateway_rows import GATEWAY, GATEWAY_ROWS
from processes import Bench

IDENTITY = 'fields = ["/n"]'
ON_CHANGE = "on_change = true"
PRIVATE = 'drop = ["/battery"]'
REACT = 'when = "event.value.temperature > 99.0", then = [{ alarm = "hot" }]'
KINDS = {"identity": IDENTITY, "reduce": ON_CHANGE, "private": PRIVATE, "react": REACT}
PAIRS = (("identity", "react"), ("private", "reduce"), ("reduce", "react"), ("private", "react"), ("identity", "reduce"))
"""The two kinds of rule of each ten devices, twice over."""


def settings(*kinds: str) -> tuple[str, ...]:
    """Return the rules of these kinds as settings, two for each ten devices."""
    rules: dict[str, list[str]] = {}
    for ten in range(10):
        for kind in PAIRS[ten % len(PAIRS)]:
            rules.setdefault(kind, []).append(f'{{ name = "{kind}-{ten}", device = "meter-00{ten}?", {KINDS[kind]} }}')
    return tuple(f"rules.{kind} = [{', '.join(rules[kind])}]" for kind in kinds)


def measure(bench: Bench) -> dict[str, float]:
    """Both ways in turn, at full speed and at 200 events/s; the order changes with each run."""
    found: dict[str, float] = {}
    for ruled in (True, False) if bench.number % 2 else (False, True):
        way = "rules" if ruled else "plain"
        bench.say(f"gateway, {'20 rules' if ruled else 'no rules'}")
        chosen = settings(*KINDS) if ruled else ()
        full = through(bench, replace(GATEWAY_ROWS["one-connection"], settings=chosen), GATEWAY)
        calm = through(bench, replace(GATEWAY_ROWS["one-connection-200"], settings=chosen), GATEWAY)
        found |= {
            f"rules.events_{way}": full["events"],
            f"rules.cpu_{way}": full["cpu"],
            f"rules.calm_cpu_{way}": calm["cpu"],
        }
    return found | {
        "rules.events": found["rules.events_rules"] / found["rules.events_plain"],
        "rules.calm": found["rules.calm_cpu_plain"] / found["rules.calm_cpu_rules"],
    }
