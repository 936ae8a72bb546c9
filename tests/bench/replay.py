"""A replay of events that a parser got wrong, beside the flow that landed them."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bridge import bare_producer
from flow import SHARDS, TIMES, rate, settings
from processes import BIN, Bench, Failed

from fogline_lab.supervisor import run_to_end

WRONG = '[flow.parsers]\n"application/json" = "cbor"\n'
"""Settings of a flow whose parser reads no event."""


def measure(bench: Bench) -> dict[str, float]:
    """All events are dead, then a replay with the right parser reads them."""
    events = bench.events * TIMES
    tenant = f"replay{bench.number}"
    bare_producer(bench, tenant, SHARDS, events)
    run = BIN / "fogline", "flow", "run", "--once", "--json", "--config"
    live, _ = rate(bench, "flow-90", events, *run, settings(bench, tenant, events, 90))
    wrong = settings(bench, tenant, events, 90, name="wrong", more=WRONG)
    rate(bench, "flow-wrong", events, *run, wrong)
    wrong.write_text(wrong.read_text("utf-8").replace(WRONG, ""), "utf-8")
    again = replay(bench, wrong, events)
    return {"replay.events": again, "replay.live": live, "replay.ratio": again / live}


def replay(bench: Bench, cloud: Path, events: int) -> float:
    """Return events a second, without the start of the session."""
    days = [f"{datetime.now(UTC) - timedelta(days=ago):%Y-%m-%d}" for ago in (1, 0)]
    log = bench.folder / "replay.log"
    command = [BIN / "fogline", "flow", "replay", "--from", days[0], "--to", days[1], "--json", "--config", cloud]
    status, result_text = run_to_end(command, log)
    if status:
        raise Failed(f"fogline flow replay: {log.read_text('utf-8').strip()}")
    result = json.loads(result_text)
    if result["outcomes"] != {"dead -> ok": events}:
        raise Failed(f"fogline flow replay: {result['outcomes']} of {events} events")
    seconds: float = result["seconds"]
    return events / seconds
