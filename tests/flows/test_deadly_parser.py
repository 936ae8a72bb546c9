"""The flow goes on after parsers that kill or block their worker."""

from collections import Counter
from collections.abc import Callable

import pytest

from flows.tenant_flow import Flow
from fogline.events.event import Event

MakeEvent = Callable[..., Event]
BAD = {
    b"kill": ("dead", "killed"),
    b"endless C": ("slow", "timeout"),
    b"8 GB": ("dead", "memory"),
    b"endless": ("slow", "timeout"),
    b"error": ("dead", "parser-error"),
}
MANY = 3000


@pytest.mark.fault("D7")
def test_five_bad_records_among_many_cost_no_other_event(flow: Flow, make_event: MakeEvent) -> None:
    """F4, F5: each bad record has its outcome, all others land, and the next micro-batch lands too."""
    bodies = [b"good"] * MANY
    for number, body in enumerate(BAD):
        bodies[number * MANY // len(BAD)] = body
    kinds = ("application/x-deadly", "text/plain")
    flow.land(
        [
            make_event(body, device=f"d{number % 97}", content_type=kinds[0])
            if body in BAD or number % 2
            else make_event(b"1", device=f"d{number % 97}", content_type=kinds[1])
            for number, body in enumerate(bodies)
        ]
    )
    flow.hurry()
    flow.run()
    outcomes = Counter((row["outcome"], row["reason"]) for row in flow.rows("events"))
    assert outcomes == Counter(BAD.values()) + Counter({("ok", None): MANY - len(BAD)})

    flow.land([make_event(body, device="e", content_type=kinds[0]) for body in (b"good", b"kill", b"good")])
    flow.run()
    found = [(row["outcome"], row["reason"]) for row in flow.rows("events")[-3:]]
    assert found == [("ok", None), ("dead", "killed"), ("ok", None)]
    assert len(flow.rows("readings")) == MANY - len(BAD) + 2
