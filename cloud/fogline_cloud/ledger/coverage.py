"""Until when the tables are complete, by gateway: a ledger that balances says nothing of what a gateway still holds. Pure.

Every statement of a gateway names the last sequence of each of its streams. When all of these have arrived, everything has that
the gateway stored before the statement. A gateway without events writes a statement every 15 minutes, so one that is silent for
longer is switched off, or cut off, and may hold events.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from fogline_cloud.ledger.balance import StreamEvidence


@dataclass(frozen=True, slots=True)
class GatewayCoverage:
    """One gateway. `complete_ms`: everything that it stored before this moment has arrived; 0 if nothing is known.

    `last_ms`: the moment of its last event in Kafka, 0 if unknown. `backlog`: the events that it held at its last statement.
    `why`: what limits `complete_ms`, if it is not the age of the last statement.
    """

    gateway: str
    complete_ms: int
    last_ms: int
    backlog: int
    why: str = ""


def coverage_of(streams: Iterable[StreamEvidence]) -> list[GatewayCoverage]:
    """Return the coverage of each gateway, by name."""
    by_gateway: dict[str, dict[str, StreamEvidence]] = defaultdict(dict)
    for each in streams:
        by_gateway[each.gateway][each.stream] = each
    return [_coverage(gateway, found) for gateway, found in sorted(by_gateway.items())]


def _coverage(gateway: str, streams: dict[str, StreamEvidence]) -> GatewayCoverage:
    newest = max(streams.values(), key=lambda each: each.statement_ms)
    complete_ms, why = newest.statement_ms, "" if newest.statement_ms else "it has sent no statement with a known time"
    for stream, head in newest.heads.items():
        known = streams.get(stream)
        landed = max(known.kafka.last, known.table.last) if known is not None else 0
        stored_ms = known.newest[1] if known is not None else 0
        if head > landed and stored_ms < complete_ms:
            complete_ms, why = stored_ms, f"stream {stream} has {head} events, and {landed} have arrived"
    for each in streams.values():
        if each.pending and each.pending_ms < complete_ms:
            complete_ms, why = each.pending_ms, "the flow has not read all of its events. Does it run? See: fogline flow status"
    counts = newest.statement
    backlog = max(0, counts.stored - counts.settled - counts.dropped) if counts is not None else 0
    return GatewayCoverage(gateway, complete_ms, max(each.newest[1] for each in streams.values()), backlog, why)
