"""What the loop asks the writer's thread to do: reads for the uplink, quarantine, a stream that begins anew."""

from dataclasses import dataclass

from fogline.codec import Replay, decode_event, encode_event
from fogline.errors import Poison
from fogline.event import Event, Lane
from fogline.gap import Gap, GapReason, gap_event
from fogline.hello import Own
from fogline.ledger import Counts
from fogline_edge.boot import time_quality
from fogline_edge.outbox.queries import SQL
from fogline_edge.outbox.streams import Row, Stream
from fogline_edge.outbox.writer import Writer, utc_now


@dataclass(frozen=True, slots=True)
class StreamView:
    """A stream as it stood at one moment."""

    stream: str
    lane: Lane
    open: bool
    head: int
    settled: int
    counts: Counts


def pending(writer: Writer) -> list[StreamView]:
    """Every stream that the bridge has to hear of."""
    return [
        StreamView(each.stream, each.lane, each.open, each.head, each.settled, each.counts) for each in writer.streams.pending()
    ]


def own(writer: Writer, name: str, chain_sequence: int) -> Own:
    """What hello needs to know of a stream."""
    stream = writer.streams.get(name)
    row = writer.connection.execute(SQL["chain_at"], (stream.number, chain_sequence)).fetchone()
    return Own(stream.settled, stream.settled_chain.hex(), stream.head, row[0].hex() if row else None)


def read(writer: Writer, name: str, after: int, limit: int) -> list[Row]:
    """At most `limit` rows above `after`."""
    stream = writer.streams.get(name)
    rows = stream.remembered(after, limit)
    if rows is None:
        rows = [Row(*row) for row in writer.connection.execute(SQL["read_events"], (stream.number, after, limit))]
    if rows:
        writer.handed[name] = max(rows[-1].sequence, writer.handed.get(name, 0))
    return rows


@dataclass(frozen=True, slots=True)
class Refusal:
    """One event that the bridge will never take, and its reason."""

    stream: str
    sequence: int
    condition: str
    description: str


def quarantine(writer: Writer, refusal: Refusal) -> None:
    """Copy one row aside and put a gap record in its place, in one transaction."""
    stream = writer.streams.get(refusal.stream)
    place = (stream.number, refusal.sequence)
    row = writer.connection.execute(SQL["one_event"], place).fetchone()
    if row is None:
        return
    event = _gap_in_place(writer, stream, refusal, row[1], GapReason.QUARANTINED)
    with writer.transaction():
        aside = (*place, refusal.condition, refusal.description, row[1], utc_now())
        writer.connection.execute(SQL["quarantine"], aside)
        writer.connection.execute(SQL["replace_body"], (encode_event(event), *place))
        stream.counts.quarantined += 1
        stream.forget_tail()
        writer.streams.save(stream)


def _gap_in_place(writer: Writer, stream: Stream, refusal: Refusal, body: bytes, reason: GapReason) -> Event:
    """The gap record that takes a row's place; it names the event as far as the row can be read."""
    try:
        former: Event | None = decode_event(body)
    except Poison:
        former = None
    sequence = refusal.sequence
    gap = Gap(
        reason,
        sequence,
        sequence,
        f"{refusal.condition} {refusal.description}".strip(),
        former.id if former else None,
        former.device if former else None,
    )
    tenant, gateway = writer.identity
    return gap_event(
        gap,
        tenant=tenant,
        gateway=gateway,
        stream=stream.stream,
        lane=stream.lane,
        now_ns=writer.clock.time_ns(),
        timequality=time_quality(writer.clock.time_ns()),
        replayed=reason is GapReason.DAMAGED,
    )


def reopen(writer: Writer, name: str, upto: int, why: str) -> None:
    """Renumber what is above `upto` into a new stream of the lane; ids stay as they are."""
    with writer.transaction():
        old = writer.streams.get(name)
        writer.accept(name, min(upto, old.head))
        rows = writer.connection.execute(SQL["read_events"], (old.number, old.settled, -1)).fetchall()
        new = writer.streams.open(old.lane, why) if old.open else writer.streams.of_lane(old.lane)
        for _, chain, body in rows:
            new.head += 1
            new.counts.stored += 1
            new.chain = chain
            writer.connection.execute(SQL["insert_event"], (new.number, new.head, chain, _moved(writer, new, body)))
        writer.connection.execute(SQL["delete_settled"], (old.number, old.head))
        old.settled = old.head
        old.forget_tail()
        writer.streams.save(old)
        writer.streams.save(new)


def _moved(writer: Writer, new: Stream, body: bytes) -> bytes:
    """An event at the head of its new stream. One that cannot be read goes to quarantine, and a gap record takes its place."""
    try:
        return Replay(body).encode(new.stream, new.head)
    except Poison as error:
        refusal = Refusal(new.stream, new.head, "damaged", str(error))
        aside = (new.number, new.head, refusal.condition, refusal.description, body, utc_now())
        writer.connection.execute(SQL["quarantine"], aside)
        new.counts.quarantined += 1
        return encode_event(_gap_in_place(writer, new, refusal, body, GapReason.DAMAGED))
