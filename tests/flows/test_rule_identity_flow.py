"""Events whose identity a rule of two gateways gave, with real Kafka, Spark and Delta."""

import pytest

GATEWAYS = {"gw-1": "00000000000000a1", "gw-2": "00000000000000a2"}


@pytest.fixture
def sent(make_event):
    """Return an event that a gateway stored at `minute`. One a month later has the same id: it is a copy of any age."""

    def make(gateway, name, dedup, minute, **given):
        month, rest = divmod(minute, 10_000)
        time = f"2026-{month + 1:02d}-02T03:{rest:02d}:00Z"
        return make_event(id=name, dedup=dedup, gateway=gateway, stream=GATEWAYS[gateway], recordedtime=time, **given)

    return make


def told(flow):
    """Return each row of `events`: its id, gateway, outcome, reason and whether it is a copy."""
    rows = sorted(flow.rows("events"), key=lambda row: (row["id"], row["recordedtime"], row["gateway"]))
    return [(row["id"], row["gateway"], row["outcome"], row["reason"], row["again"]) for row in rows]


def test_flow_keeps_one_row_of_unique_events_marks_copies_and_leaves_the_rest(flow, sent):
    flow.land([sent("gw-1", "unique", "unique", 0), sent("gw-1", "marked", "marked", 0), sent("gw-1", "none", "none", 0)])
    flow.run()
    later = 10_000
    flow.land([sent("gw-2", name, name, later) for name in ("unique", "marked", "none")])
    flow.land([sent("gw-2", "marked", "marked", later + 1, replayed=True)])
    first = "possible-duplicate-of=marked"
    flow.land([sent("gw-1", "marked-at-gateway", "marked", later, properties=first)])
    flow.land([sent("gw-1", "marked-at-gateway", "marked", later, properties=first, replayed=True)])
    flow.land([sent("gw-1", "batch", "unique", later), sent("gw-2", "batch", "unique", later)])
    flow.run()

    assert told(flow) == [
        ("batch", "gw-1", "ok", None, False),
        ("batch", "gw-2", "duplicate", "shared", True),
        ("marked", "gw-1", "ok", None, False),
        ("marked", "gw-2", "ok", None, True),
        ("marked", "gw-2", "duplicate", "replayed", True),
        ("marked-at-gateway", "gw-1", "ok", None, True),
        ("marked-at-gateway", "gw-1", "duplicate", "replayed", True),
        ("none", "gw-1", "ok", None, None),
        ("none", "gw-2", "ok", None, None),
        ("unique", "gw-1", "ok", None, False),
        ("unique", "gw-2", "duplicate", "shared", True),
    ]
    assert sorted(row["id"] for row in flow.rows("readings")) == [
        "batch",
        "marked",
        "marked",
        "marked-at-gateway",
        "none",
        "none",
        "unique",
    ]
    before = flow.rows("events"), flow.rows("readings")
    for done in (flow.checkpoint / "commits").iterdir():
        done.unlink()
    flow.run()
    assert (flow.rows("events"), flow.rows("readings")) == before, "a replay decides the same"
