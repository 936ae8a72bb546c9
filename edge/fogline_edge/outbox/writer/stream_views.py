"""The state of streams, as hello announces it to the bridge."""

from dataclasses import dataclass

from fogline.errors import Poison
from fogline.events.codec import chain_of, decode_event
from fogline.events.event import Lane, TimeQuality, parse_rfc3339
from fogline.gateway.hello import Own
from fogline.gateway.ledger import Counts
from fogline_edge.outbox.rows.streams import Stream
from fogline_edge.outbox.writer.store import OutboxStore


@dataclass(frozen=True, slots=True)
class StreamView:
    """State of a stream at one moment."""

    stream: str
    lane: Lane
    open: bool
    head: int
    settled: int
    counts: Counts


def pending(store: OutboxStore) -> list[StreamView]:
    """Return every stream that hello announces to the bridge."""
    streams = store.streams.pending()
    return [StreamView(each.stream, each.lane, each.open, each.head, each.settled, each.counts) for each in streams]


def own(store: OutboxStore, name: str, chain_sequence: int, now_ns: int) -> Own | None:
    """Return a stream's state for hello at `now_ns`, or None if there is none of that name."""
    try:
        stream = store.streams.get(name)
    except KeyError:
        return None
    settled, at_mark = store.commit_id_at(stream, stream.settled), store.commit_id_at(stream, chain_sequence)
    chain_at_mark = chain_of(at_mark).hex() if at_mark else None
    chain = chain_of(settled).hex() if settled else ""
    return Own(stream.settled, chain, stream.head, chain_at_mark, stream.dropped.upto, _waited_ms(store, stream, now_ns))


def _waited_ms(store: OutboxStore, stream: Stream, now_ns: int) -> int:
    """Return the age of the first unsettled event, 0 for unknown. A gap record in front may be younger than what follows."""
    waited_ms = 0
    for row in store.events(stream, stream.settled, 2):
        try:
            event = decode_event(row.body)
            recorded_ns = parse_rfc3339(event.recordedtime)
        except (Poison, ValueError):
            continue
        if event.timequality is not TimeQuality.UNSYNCED:
            waited_ms = max(waited_ms, (now_ns - recorded_ns) // 1_000_000)
    return waited_ms
