"""What the loop asks the writer's thread to do: reads for the uplink, quarantine, a stream that begins anew."""

import contextlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import starmap

from fogline.codec import Replay, decode_event, encode_event
from fogline.errors import Poison
from fogline.event import Event, Lane
from fogline.gap import GAP_CONTENT_TYPE, Gap, GapReason, above, gap_event
from fogline.hello import Own
from fogline.ledger import Counts
from fogline_edge.boot import moment, time_quality
from fogline_edge.outbox import dropping
from fogline_edge.outbox.dropped import Dropped
from fogline_edge.outbox.expiring import expire
from fogline_edge.outbox.ingest import Group
from fogline_edge.outbox.quarantine import Refused
from fogline_edge.outbox.queries import SQL
from fogline_edge.outbox.streams import Row, Stream
from fogline_edge.outbox.writer import Writer, utc_now

MOVED_AT_ONCE = 500
"""Rows that are in no place for a moment while a stream is moved: a file that is nearly full has no room for two of each."""

MAX_BEHIND = 4
"""Closed streams of a lane that may wait at a time: after one more outage the open one goes on as it is."""


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


def own(writer: Writer, name: str, chain_sequence: int) -> Own | None:
    """What hello needs to know of a stream, `None` if there is none of that name."""
    try:
        stream = writer.streams.get(name)
    except KeyError:
        return None
    row = writer.connection.execute(SQL["chain_at"], (stream.number, chain_sequence)).fetchone()
    chain = row[0].hex() if row else None
    return Own(stream.settled, stream.settled_chain.hex(), stream.head, chain, stream.dropped.upto)


def read(writer: Writer, name: str, after: int, limit: int, limit_bytes: int | None) -> list[Row]:
    """At most `limit` rows above `after`, whose bodies have at most `limit_bytes` together; at least one, if there is one."""
    stream = writer.streams.get(name)
    remembered = stream.remembered(after, limit)
    if remembered is not None:
        rows = _within(remembered, limit_bytes)
    else:
        with contextlib.closing(writer.connection.execute(SQL["read_events"], (stream.number, after, limit))) as found:
            rows = _within(starmap(Row, found), limit_bytes)
    if stream.lane in writer.expires:
        rows = expire(writer, stream, rows)
    if rows and rows[0].sequence == stream.dropped.upto:
        rows[0] = _gap_above(writer, stream, rows[0], after)
        stream.dropped.send(after)
    if rows:
        writer.handed[name] = max(rows[-1].sequence, writer.handed.get(name, 0))
    return rows


def _within(rows: Iterable[Row], limit_bytes: int | None) -> list[Row]:
    """The first that fit, and no more of them is read than that."""
    taken: list[Row] = []
    total = 0
    for row in rows:
        total += len(row.body) + 1
        if taken and limit_bytes is not None and total > limit_bytes:
            break
        taken.append(row)
    return taken


def _gap_above(writer: Writer, stream: Stream, row: Row, after: int) -> Row:
    """The gap record over what was dropped, as it is to be sent: for what lies above `after`."""
    try:
        (event,) = above([decode_event(row.body)], after)
    except Poison:
        event = dropping.gap_over(writer, stream, after + 1, row.sequence, dropping.WHY)
    return row._replace(body=encode_event(event), spans=row.sequence - after)


@dataclass(frozen=True, slots=True)
class Refusal:
    """One event that the bridge will never take, and its reason."""

    stream: str
    sequence: int
    condition: str
    description: str


def quarantine(writer: Writer, refusal: Refusal) -> bool:
    """Copy one row aside and put a gap record in its place, in one transaction; `False` if one stands there already."""
    stream = writer.streams.get(refusal.stream)
    place = (stream.number, refusal.sequence)
    row = writer.connection.execute(SQL["one_event"], place).fetchone()
    if row is None:
        return True
    if _is_gap(row[1]):
        return False
    event = _gap_in_place(writer, stream, refusal, row[1], GapReason.QUARANTINED)
    with writer.transaction():
        writer.quarantine.add(writer, Refused(place, refusal.condition, refusal.description, row[1], utc_now()))
        writer.connection.execute(SQL["replace_body"], (encode_event(event), *place))
        stream.counts.quarantined += 1
        stream.forget_tail()
        writer.streams.save(stream)
    return True


def _is_gap(body: bytes) -> bool:
    try:
        return decode_event(body).content_type == GAP_CONTENT_TYPE
    except Poison:
        return False


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
        timequality=time_quality(writer.clock),
        replayed=reason is GapReason.DAMAGED,
    )


def reopen(writer: Writer, name: str, upto: int, why: str) -> None:
    """Renumber what is above `upto` into a new stream of the lane; ids stay as they are."""
    with writer.transaction():
        old = writer.streams.get(name)
        writer.accept(name, min(upto, old.head))
        new = writer.streams.open(old.lane, why) if old.open else writer.streams.of_lane(old.lane)
        while rows := writer.connection.execute(SQL["read_events"], (old.number, old.settled, MOVED_AT_ONCE)).fetchall():
            old.settled = rows[-1][0]
            writer.connection.execute(SQL["delete_settled"], (old.number, old.settled))
            for _, chain, body in rows:
                new.head += 1
                new.counts.stored += 1
                new.chain = chain
                writer.connection.execute(SQL["insert_event"], (new.number, new.head, chain, _moved(writer, new, body)))
        writer.connection.execute(SQL["drop_passed"], (old.number, old.head))
        old.dropped = Dropped()
        old.forget_tail()
        writer.streams.save(old)
        writer.streams.save(new)


def part(writer: Writer, lanes: frozenset[Lane], events: int) -> list[Stream]:
    """Of lanes with more than `events` waiting: close the stream, with its last word, and open another for what is new.

    What was closed waits behind it; of a lane at most `MAX_BEHIND` do. Returns those that were closed.
    """
    behind = Counter(each.lane for each in writer.streams.pending() if not each.open)
    late = [each for each in writer.streams.opened() if each.lane in lanes and each.head - each.kept_after > events]
    late = [each for each in late if behind[each.lane] < MAX_BEHIND]
    if late:
        with writer.transaction():
            group = Group(writer.age.ms)
            for stream in late:
                writer.ingest.state(group, stream, moment(writer.clock), closed=True)
            writer.ingest.write(group)
            for stream in late:
                writer.streams.open(stream.lane, "newest first")
        writer.ingest.committed()
    return late


def _moved(writer: Writer, new: Stream, body: bytes) -> bytes:
    """An event at the head of its new stream. One that cannot be read goes to quarantine, and a gap record takes its place."""
    try:
        return Replay(body).encode(new.stream, new.head)
    except Poison as error:
        refusal = Refusal(new.stream, new.head, "damaged", str(error))
        refused = Refused((new.number, new.head), refusal.condition, refusal.description, body, utc_now())
        writer.quarantine.add(writer, refused)
        new.counts.quarantined += 1
        return encode_event(_gap_in_place(writer, new, refusal, body, GapReason.DAMAGED))
