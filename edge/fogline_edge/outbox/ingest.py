"""A group of arrivals into the outbox, inside one transaction: recognise, number, chain, insert, remember, count."""

import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from fogline.codec import encode_event
from fogline.dead import DEAD_TYPE
from fogline.event import Arrival, Event, Lane, Receipt, TimeQuality, rfc3339
from fogline.identity import Dedup, chained
from fogline.ledger import STATEMENT_CONTENT_TYPE, Statement, encode_statement
from fogline_edge.outbox.queries import SQL
from fogline_edge.outbox.recognition import Fresh, Resend, Trace, first_id, recognise, slot_key
from fogline_edge.outbox.streams import Stream, Streams

CLOCK_IS_SET_NS = 1_735_689_600_000_000_000
"""2025-01-01: a clock before this has not been set since the machine started."""

_trace = msgspec.msgpack.Decoder(Trace)
_pack = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True, slots=True)
class Waiting:
    """An arrival, when it came (nanoseconds since 1970), and whom to tell once it is durable."""

    arrival: Arrival
    time_ns: int
    done: Callable[[Receipt], None]


@dataclass(frozen=True, slots=True)
class Act:
    """Something else that is to be durable with a group, in its place among the arrivals: run, then told."""

    run: Callable[["Ingest", "Group"], Any]
    done: Callable[[Any], None]


@dataclass(slots=True)
class Group:
    """What one transaction writes: collected first, inserted together.

    `age_s`: the gateway's own running time. `nonce` goes into the chain of the group's events.
    """

    age_s: int
    events: list[tuple[int, int, bytes, bytes]] = field(default_factory=list)
    memory: dict[bytes, tuple[str, Trace]] = field(default_factory=dict)
    touched: dict[str, Stream] = field(default_factory=dict)
    conflicts: int = 0
    nonce: bytes = field(default_factory=lambda: os.urandom(8))

    def incarnation(self) -> int:
        """63 random bits, another value for each event of the group."""
        return (int.from_bytes(self.nonce, "big") + len(self.events)) & ((1 << 63) - 1)


class Ingest:
    """Turns arrivals into rows. Used on the writer's thread only. `identity`: tenant and gateway."""

    def __init__(self, connection: sqlite3.Connection, streams: Streams, tenant: str, gateway: str) -> None:
        self.connection = connection
        self.identity = (tenant, gateway)
        self._streams = streams
        self._tenant = tenant
        self._gateway = gateway

    def store(self, work: Sequence[Waiting | Act], age_s: int) -> list[Any]:
        """Take a group within the transaction that is open; a result each (an arrival's is its receipt), to be told later."""
        group = Group(age_s)
        results = [self.take(group, each) if isinstance(each, Waiting) else each.run(self, group) for each in work]
        self.write(group)
        return results

    def forget(self, group: Group, device: str, slot: bytes) -> None:
        """Forget what was remembered under a slot."""
        key = slot_key(device, slot)
        group.memory.pop(key, None)
        self.connection.execute(SQL["forget_one"], (key,))

    def keep(self, key: str, value: bytes | None) -> None:
        """Keep, or no longer keep, an adapter's own value."""
        if value is None:
            self.connection.execute(SQL["drop_kept"], (key,))
        else:
            self.connection.execute(SQL["keep"], (key, value))

    def write(self, group: Group) -> None:
        """Insert what a group has collected."""
        self.connection.executemany(SQL["insert_event"], group.events)
        if group.memory:
            rows = [(key, device, group.age_s, _pack(trace)) for key, (device, trace) in group.memory.items()]
            self.connection.executemany(SQL["remember"], rows)
        for stream in group.touched.values():
            self._streams.save(stream)

    def state(self, group: Group, stream: Stream, time_ns: int) -> None:
        """Append a statement of the stream's counts to the stream itself."""
        stream.stated = stream.arrivals
        body = encode_statement(Statement(stream.stream, stream.lane.value, stream.counts))
        arrival = Arrival(
            device=self._gateway,
            channel="ledger",
            lane=stream.lane,
            content_type=STATEMENT_CONTENT_TYPE,
            data=body,
            adapter="fogline",
            type="ledger",
        )
        self.append(group, arrival, time_ns, Fresh(None, Dedup.STRONG, ()))

    def take(self, group: Group, waiting: Waiting) -> Receipt:
        """Recognise an arrival, or give it its place."""
        arrival = waiting.arrival
        verdict = recognise(arrival, self._tenant, lambda key: self._recall(group, key), group.age_s, group.incarnation())
        if isinstance(verdict, Resend):
            stream = self._streams.of_lane(arrival.lane)
            stream.counts.acknowledged += 1
            stream.counts.duplicate += 1
            group.touched[stream.stream] = stream
            return Receipt.DUPLICATE
        stream = self.append(group, arrival, waiting.time_ns, verdict)
        stream.counts.acknowledged += 1
        if arrival.type == DEAD_TYPE:
            stream.counts.dead += 1
            return Receipt.DEAD
        return Receipt.STORED

    def append(self, group: Group, arrival: Arrival, time_ns: int, verdict: Fresh) -> Stream:
        """Give an arrival the next sequence of its lane's stream."""
        stream = self._streams.of_lane(arrival.lane)
        stream.head += 1
        stream.counts.stored += 1
        event = self._event(arrival, time_ns, verdict, stream)
        stream.chain = chained(stream.chain, event.id, arrival.data, group.nonce)
        group.events.append((stream.number, stream.head, stream.chain, encode_event(event)))
        group.touched[stream.stream] = stream
        group.conflicts += verdict.conflict
        for key, trace in verdict.remember:
            group.memory[key] = (arrival.device, trace)
        return stream

    def _event(self, arrival: Arrival, time_ns: int, verdict: Fresh, stream: Stream) -> Event:
        outcome = arrival.outcome
        return Event(
            id=verdict.id or first_id(arrival, self._tenant, stream.stream, stream.head),
            tenant=self._tenant,
            device=arrival.device,
            type=arrival.type,
            subject=arrival.channel,
            recordedtime=rfc3339(time_ns),
            content_type=arrival.content_type,
            data=arrival.data,
            gateway=self._gateway,
            stream=stream.stream,
            sequence=stream.head,
            lane=Lane(stream.lane),
            timequality=TimeQuality.SYNCED if time_ns >= CLOCK_IS_SET_NS else TimeQuality.UNSYNCED,
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
        return _trace.decode(row[0]) if row else None


def now_ns() -> int:
    """The wall clock, nanoseconds since 1970."""
    return time.time_ns()
