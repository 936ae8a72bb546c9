"""A group of arrivals into the outbox, inside one transaction: recognise, number, chain, insert, remember, count."""

import os
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any

import msgspec
from msgspec.structs import replace

from fogline.codec import Beacon, encode_event
from fogline.dead import DEAD_TYPE
from fogline.event import POSSIBLE_DUPLICATE, Arrival, Event, Lane, Receipt, TimeQuality, rfc3339
from fogline.frame import Frame, encode_framed, frame_of
from fogline.identity import AckDelivery, Dedup, Retransmission, chained, digest, sequence_id
from fogline.ledger import STATEMENT_CONTENT_TYPE, Statement, encode_statement
from fogline.report import Report, Reported, is_news
from fogline_edge.boot import SYSTEM, Clock, Moment
from fogline_edge.outbox.heard import Heard
from fogline_edge.outbox.queries import SQL
from fogline_edge.outbox.recognition import NOTHING_GIVEN, RENEW_S, Fresh, Resend, Trace, recognise, report_key
from fogline_edge.outbox.slots import Slots
from fogline_edge.outbox.streams import Stream, Streams, Written

MAX_FRAMES = 4096
ROWS_A_STATEMENT = 32
_INSERT_MANY = SQL["insert_event"].rstrip(";") + ", (?, ?, ?, ?)" * (ROWS_A_STATEMENT - 1)

_trace = msgspec.msgpack.Decoder(Trace)
_pack = msgspec.msgpack.Encoder().encode


@dataclass(slots=True)
class Waiting:
    """An arrival, when it came, and whom to tell once it is durable."""

    arrival: Arrival
    when: Moment
    done: Callable[[Receipt], None]

    @property
    def size(self) -> int:
        """The bytes of its payload."""
        return len(self.arrival.data)


@dataclass(frozen=True, slots=True)
class Act:
    """Something else that is to be durable with a group, in its place among the arrivals: run, then told.

    `size`: the bytes that it holds in memory until then.
    """

    run: Callable[["Ingest", "Group"], Any]
    done: Callable[[Any], None]
    size: int = 0


@dataclass(slots=True)
class Group:
    """What one transaction writes: collected first, inserted together.

    `age_ms`, `age_s`: the gateway's own running time. `nonce` goes into the chain of the group's events, `tag` (of it)
    into the ids of those that have nothing better. `unsynced`: by stream and beacon, the first and last of the events
    that came while the clock was not set.
    """

    age_ms: int
    age_s: int = field(init=False)
    memory: dict[bytes, tuple[str, Trace]] = field(default_factory=dict)
    touched: dict[str, Stream] = field(default_factory=dict)
    conflicts: int = 0
    incarnations: int = 0
    unsynced: dict[tuple[int, Beacon], tuple[int, int]] = field(default_factory=dict)
    nonce: bytes = field(default_factory=lambda: os.urandom(8))
    tag: str = ""

    def __post_init__(self) -> None:
        self.age_s = self.age_ms // 1000
        self.tag = self.nonce[:4].hex()

    def unsure(self, stream: Stream, beacon: Beacon) -> None:
        """The stream's newest event came at `beacon`; what the wall clock showed will have to be corrected."""
        key = stream.number, beacon
        first, _ = self.unsynced.get(key, (stream.head, 0))
        self.unsynced[key] = first, stream.head

    def incarnation(self) -> int:
        """63 random bits, another value for each event of the group."""
        self.incarnations += 1
        return (int.from_bytes(self.nonce, "big") + self.incarnations) & ((1 << 63) - 1)


class Ingest:
    """Turns arrivals into rows. Used on the writer's thread only.

    `identity`: tenant and gateway. `unsynced`: there may be rows whose times are to be corrected. `started_s`: the age of the
    gateway when this run of it began.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        streams: Streams,
        tenant: str,
        gateway: str,
        clock: Clock = SYSTEM,
        *,
        started_s: int = 0,
    ) -> None:
        self.connection = connection
        self.clock = clock
        self.unsynced = bool(connection.execute(SQL["any_unsynced"]).fetchone()[0])
        self.identity = (tenant, gateway)
        self._streams = streams
        self._slots = Slots(connection, started_s)
        self._heard = Heard()
        self._new_traces = 0
        self._written: list[tuple[Stream, list[Written]]] = []
        self._frames: dict[tuple[int | str, ...], Frame] = {}
        self._tenant = tenant
        self._gateway = gateway

    def store(self, work: Sequence[Waiting | Act], age_ms: int) -> list[Any]:
        """Take a group within the transaction that is open; a result each (an arrival's is its receipt), to be told later."""
        group = Group(age_ms)
        results = [self.take(group, each) if isinstance(each, Waiting) else each.run(self, group) for each in work]
        self.write(group)
        return results

    def committed(self) -> None:
        """What was written in the transaction is durable: it is kept at hand for whoever sends it."""
        written, self._written = self._written, []
        for stream, rows in written:
            stream.keep(rows)

    def growth(self) -> tuple[int, int]:
        """How many rows the memory of resends has taken since the last call: of traces, of slots."""
        grown = self._new_traces, self._slots.new_pages
        self._new_traces = self._slots.new_pages = 0
        return grown

    def forget(self, device: str, slot: bytes, number: int) -> None:
        """Forget what was remembered under a slot."""
        self._slots.forget(device, slot, number)

    def keep(self, key: str, value: bytes | None) -> None:
        """Keep, or no longer keep, an adapter's own value."""
        if value is None:
            self.connection.execute(SQL["drop_kept"], (key,))
        else:
            self.connection.execute(SQL["keep"], (key, value))

    def write(self, group: Group) -> None:
        """Insert what a group has collected."""
        for stream in group.touched.values():
            rows, stream.fresh = stream.fresh, []
            insert_many(self.connection, rows)
            self._written.append((stream, rows))
        if group.memory:
            traces = [(key, device, group.age_s, _pack(trace)) for key, (device, trace) in group.memory.items()]
            self.connection.executemany(SQL["remember"], traces)
        if group.unsynced:
            self.unsynced = True
            times = [(stream, *span, *msgspec.structs.astuple(beacon)) for (stream, beacon), span in group.unsynced.items()]
            self.connection.executemany(SQL["note_unsynced"], times)
        self._slots.write(group.age_s)
        for stream in group.touched.values():
            self._streams.save(stream)

    def state(self, group: Group, stream: Stream, when: Moment, *, closed: bool = False) -> None:
        """Append a statement of the stream's counts to the stream itself, which has to be open. `closed`: its last."""
        stream.stated = stream.arrivals
        body = encode_statement(Statement(stream.stream, stream.lane.value, stream.counts, closed))
        arrival = Arrival(
            device=self._gateway,
            channel="ledger",
            lane=stream.lane,
            content_type=STATEMENT_CONTENT_TYPE,
            data=body,
            adapter="fogline",
            type="ledger",
        )
        self.append(group, arrival, when, Fresh(None, Dedup.STRONG, ()))

    def take(self, group: Group, waiting: Waiting) -> Receipt:
        """Recognise an arrival, or give it its place."""
        arrival = waiting.arrival
        sent = arrival.retransmission
        if sent is not None and sent.ack_delivery is AckDelivery.DOUBTFUL and arrival.type != DEAD_TYPE:
            arrival = self._naming_the_first(arrival, sent)
        if arrival.evidence is not None or has_more(arrival):
            return self._take_special(group, arrival, waiting.when)
        return self._take_plain(group, arrival, waiting.when)

    def _naming_the_first(self, arrival: Arrival, sent: Retransmission) -> Arrival:
        """The arrival with the id of the event that it may repeat, if that is known."""
        original = self._slots.repeated_id(arrival.device, sent, digest(arrival.channel, arrival.data, sent.token))
        if not original:
            return arrival
        naming = f"{POSSIBLE_DUPLICATE}={original}"
        return replace(arrival, properties=f"{arrival.properties}&{naming}" if arrival.properties else naming)

    def _take_plain(self, group: Group, arrival: Arrival, when: Moment) -> Receipt:
        """What nearly all arrivals are: no identity of the device's own, no rare attribute. In one go, for its speed."""
        data = arrival.data
        stream = self._streams.of_lane(arrival.lane)
        frame = self._frame(arrival, stream, when)
        counts = stream.counts
        counts.acknowledged += 1
        group.touched[stream.stream] = stream
        event_id = sequence_id(stream.stream, stream.head + 1, group.tag)
        if (sent := arrival.retransmission) is not None:
            payload = digest(arrival.channel, data, sent.token)
            if sent.again and self._slots.repeats(arrival.device, sent, payload, group.age_s):
                counts.duplicate += 1
                return Receipt.DUPLICATE
            self._slots.note(arrival.device, sent, payload, group.age_s, event_id)
        stream.head = head = stream.head + 1
        counts.stored += 1
        stream.chain = link = chained(stream.chain, event_id, data, group.nonce)
        body = encode_framed(frame, event_id, when.text, head, data)
        stream.fresh.append((stream.number, head, link, body))
        if when.beacon is not None:
            group.unsure(stream, when.beacon)
        if arrival.type == DEAD_TYPE:
            counts.dead += 1
            return Receipt.DEAD
        return Receipt.STORED

    def _frame(self, arrival: Arrival, stream: Stream, when: Moment) -> Frame:
        """What this event has in common with others of its channel."""
        key = (
            stream.number,
            arrival.device,
            arrival.channel,
            arrival.content_type,
            arrival.type,
            arrival.adapter,
            when.synced,
        )
        frame = self._frames.get(key)
        if frame is None:
            frame = frame_of(self._event(arrival, "", when, NOTHING_GIVEN, stream))
            if len(self._frames) >= MAX_FRAMES:
                self._frames.clear()
            self._frames[key] = frame
        return frame

    def _take_special(self, group: Group, arrival: Arrival, when: Moment) -> Receipt:
        """One with an identity of its own, or with attributes that few have."""
        sent = arrival.retransmission
        payload = digest(arrival.channel, arrival.data, sent.token if sent else b"")
        stream = self._streams.of_lane(arrival.lane)
        if arrival.report is not None and not self._is_news(group, arrival, arrival.report):
            return self._filtered(group, arrival, stream, payload)
        verdict = self._judge(group, arrival, payload)
        if isinstance(verdict, Resend) and arrival.report is not None and sent is None:
            return self._filtered(group, arrival, stream, payload)
        if isinstance(verdict, Resend):
            group.memory.update((key, (arrival.device, trace)) for key, trace in verdict.remember)
            stream.counts.acknowledged += 1
            stream.counts.duplicate += 1
            group.touched[stream.stream] = stream
            return Receipt.DUPLICATE
        event_id = self.append(group, arrival, when, verdict)
        if sent is not None:
            self._slots.note(arrival.device, sent, payload, group.age_s, event_id)
        if arrival.report is not None:
            said = Trace(digest(arrival.channel, arrival.data), group.age_s, group.age_ms)
            group.memory[report_key(arrival)] = (arrival.device, said)
        stream.counts.acknowledged += 1
        return Receipt.STORED

    def _filtered(self, group: Group, arrival: Arrival, stream: Stream, payload: bytes) -> Receipt:
        """A device repeats itself. Saved with the stream's next event: for this alone nothing is written."""
        self._heard.note(arrival, payload, group.age_s)
        stream.counts.filtered += 1
        return Receipt.FILTERED

    def _is_news(self, group: Group, arrival: Arrival, report: Report) -> bool:
        """By what was last stored of its channel."""
        key = report_key(arrival)
        said = self._recall(group, key)
        if said is not None and group.age_s - said.age_s > RENEW_S:
            group.memory[key] = (arrival.device, replace(said, age_s=group.age_s))
        last = Reported(said.digest, said.first) if said is not None else None
        return is_news(report, last, digest(arrival.channel, arrival.data), group.age_ms)

    def _is_due(self, group: Group, arrival: Arrival, report: Report) -> bool:
        """Whether news says what the last event said: once in `max_interval_s` it is to be an event."""
        said = self._recall(group, report_key(arrival))
        return report.on_change and said is not None and said.digest == digest(arrival.channel, arrival.data)

    def _judge(self, group: Group, arrival: Arrival, payload: bytes) -> Fresh | Resend:
        """By what the protocol says of resends, then by the identity that the device gave."""
        sent = arrival.retransmission
        if sent is not None and sent.again and self._slots.repeats(arrival.device, sent, payload, group.age_s):
            return Resend()
        recall, nonce = partial(self._recall, group), group.incarnation()
        if arrival.report is not None and not self._is_due(group, arrival, arrival.report):
            recall = partial(self._recall_heard, group, arrival)
        return recognise(arrival, payload, tenant=self._tenant, recall=recall, age_s=group.age_s, nonce=nonce)

    def append(self, group: Group, arrival: Arrival, when: Moment, verdict: Fresh) -> str:
        """Give an arrival the next sequence of its lane's stream. Returns the event's id."""
        stream = self._streams.of_lane(arrival.lane)
        stream.head += 1
        stream.counts.stored += 1
        event_id = verdict.id or sequence_id(stream.stream, stream.head, group.tag)
        stream.chain = chained(stream.chain, event_id, arrival.data, group.nonce)
        body = encode_event(self._event(arrival, event_id, when, verdict, stream))
        stream.fresh.append((stream.number, stream.head, stream.chain, body))
        if when.beacon is not None:
            group.unsure(stream, when.beacon)
        group.touched[stream.stream] = stream
        group.conflicts += verdict.conflict
        for key, trace in verdict.remember:
            group.memory[key] = (arrival.device, trace)
        return event_id

    def _event(self, arrival: Arrival, event_id: str, when: Moment, verdict: Fresh, stream: Stream) -> Event:
        outcome, time_ns = arrival.outcome, when.time_ns
        return Event(
            id=event_id,
            tenant=self._tenant,
            device=arrival.device,
            type=arrival.type,
            subject=arrival.channel,
            recordedtime=when.text,
            content_type=arrival.content_type,
            data=arrival.data,
            gateway=self._gateway,
            stream=stream.stream,
            sequence=stream.head,
            lane=Lane(stream.lane),
            timequality=TimeQuality.SYNCED if when.synced else TimeQuality.UNSYNCED,
            dedup=verdict.dedup,
            adapter=arrival.adapter,
            time=rfc3339(arrival.time_ns) if arrival.time_ns is not None else None,
            ttd=arrival.ttd_s,
            expirytime=rfc3339(time_ns + arrival.expiry_s * 1_000_000_000) if arrival.expiry_s is not None else None,
            properties=arrival.properties,
            commandid=outcome.command if outcome else None,
            commandstate=outcome.state if outcome else None,
            correlationid=outcome.correlation if outcome else None,
            status=outcome.status if outcome else None,
        )

    def _recall(self, group: Group, key: bytes) -> Trace | None:
        if (pending := group.memory.get(key)) is not None:
            return pending[1]
        row = self.connection.execute(SQL["recall"], (key,)).fetchone()
        if row is None:
            self._new_traces += 1  # what is asked for in vain is remembered next
            return None
        return _trace.decode(row[0])

    def _recall_heard(self, group: Group, arrival: Arrival, key: bytes) -> Trace | None:
        trace = self._recall(group, key)
        return self._heard.renew(trace, arrival, group.age_s) if trace is not None else None


def insert_many(connection: sqlite3.Connection, rows: list[Written]) -> None:
    """Insert rows of `event`, many a statement: each statement gives other threads a turn, which costs more than a row."""
    whole = len(rows) - len(rows) % ROWS_A_STATEMENT
    for first in range(0, whole, ROWS_A_STATEMENT):
        connection.execute(_INSERT_MANY, list(chain.from_iterable(rows[first : first + ROWS_A_STATEMENT])))
    connection.executemany(SQL["insert_event"], rows[whole:])


def has_more(arrival: Arrival) -> bool:
    """Whether an arrival has one of the attributes that few have."""
    return (
        arrival.time_ns is not None
        or arrival.outcome is not None
        or arrival.properties is not None
        or arrival.ttd_s is not None
        or arrival.expiry_s is not None
        or arrival.report is not None
    )
