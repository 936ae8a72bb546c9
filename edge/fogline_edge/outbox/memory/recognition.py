"""Decides by the identity that a device gives whether an arrival is new. Pure: a function looks up the memory.

The rules are those of `fogline.events.identity`. Each result has the entries to remember in the event's transaction. `age_s`:
the gateway's age in seconds (see `age`), which does not jump.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from fogline.events.event import Arrival
from fogline.events.identity import Counter, Dedup, DeviceTime, SessionCounter, UniqueId, digest, semantic_id
from fogline_edge.outbox.rows.memory_entry import CounterValue, MemoryEntry

COUNTER_RESEND_S = 60
"""Time after the first copy within which the same counter value with the same payload is a duplicate, in seconds."""
COUNTER_RESEND_DISTANCE = 16
"""The most by which a late or repeated counter may be behind the newest."""
RENEW_S = 12 * 3600
"""The age at which a repeated entry is written again, in seconds: memory that is not renewed expires."""
MAX_CONTENTS = 4
"""The most contents of one counter value. A counter with more does not count: each of them begins a new incarnation."""
MAX_RECENT = 64
"""The most counter values of a device that a duplicate may repeat."""
_ALL_MISSING = (1 << COUNTER_RESEND_DISTANCE + 1) - 2

Recall = Callable[[bytes], MemoryEntry | None]


@dataclass(frozen=True, slots=True)
class KnownEvent:
    """The event is stored already. `remember`: entries to renew, by key."""

    remember: tuple[tuple[bytes, MemoryEntry], ...] = ()


@dataclass(frozen=True, slots=True)
class NewEvent:
    """A new event. `id` is None on tier 5, where stream and sequence give the id. `remember`: entries to write, by key.

    `conflict`: the device reused an id for another payload; both events are kept.
    """

    id: str | None
    dedup: Dedup
    remember: tuple[tuple[bytes, MemoryEntry], ...]
    conflict: bool = False


NO_IDENTITY = NewEvent(None, Dedup.WEAK, ())
"""Tier 5: the device gave no identity."""


def recognise(
    arrival: Arrival, payload: bytes, *, tenant: str, recall: Recall, age_s: int, nonce: int
) -> KnownEvent | NewEvent:
    """Decide by the identity that the device gave. Marked retransmissions are decided before (`resend_memory`).

    `payload`: the payload's digest, with the protocol's token if there is one. `nonce`: 63 random bits, which name a new
    incarnation of a counter if one begins.
    """
    if arrival.evidence is None:
        return NO_IDENTITY
    if arrival.retransmission is not None and arrival.retransmission.token:
        payload = digest(arrival.channel, arrival.data)  # the token differs between exchanges and between gateways
    return _Case(arrival, tenant, payload, recall, age_s, nonce).identify()


@dataclass(frozen=True, slots=True)
class _Case:
    """One arrival with a device identity. `payload`: the payload's digest."""

    arrival: Arrival
    tenant: str
    payload: bytes
    recall: Recall
    age_s: int
    nonce: int

    def identify(self) -> KnownEvent | NewEvent:
        match self.arrival.evidence:
            case UniqueId(value):
                return self.named(1, value)
            case SessionCounter(session, counter):
                return self.named(2, session, _number(counter))
            case Counter() as counter:
                return self.counted(counter)
            case DeviceTime(time_ns):
                return self.timed(_number(time_ns))
            case _:
                return NO_IDENTITY

    @property
    def surely(self) -> Dedup:
        """The `dedup` attribute of an event with a strong identity."""
        return Dedup.SHARED if self.arrival.shared else Dedup.STRONG

    def named(self, tier: int, *key: bytes) -> KnownEvent | NewEvent:
        """Tiers 1 and 2: the key identifies the event. The same key with another payload is a conflict; both are kept.

        The payload is part of the id, because two gateways may receive the two in another order, or only one of them.
        """
        place = self.key(f"named{tier}", *key)
        former = self.recall(place)
        remember = [(place, self.trace())]
        conflict = former is not None and former.digest != self.payload
        if former is not None and conflict:
            other = self.key(f"named{tier}", *key, self.payload)
            remember = [(place, MemoryEntry(former.digest, self.age_s)), (other, self.trace())]  # they expire in this order
            former = self.recall(other)
        if former is not None:
            return KnownEvent(tuple(remember) if self.age_s - former.age_s > RENEW_S else ())
        return NewEvent(self.id(tier, *key, self.payload), self.surely, tuple(remember), conflict)

    def counted(self, counter: Counter) -> KnownEvent | NewEvent:
        """Tier 3: the counter and the payload identify the event.

        A value that is not new, with another payload, begins a new incarnation, because the device may have restarted. Where it
        is the newest value, the former payloads are remembered: some sensors alternate between packets with one packet id.

        State: `first` is the incarnation, `second` the newest counter extended over its wraps, `third` the missing counters:
        bit n stands for the newest less n. `recent` cannot replace `third`, because its values expire sooner than the state.
        The payload is part of the id, because two copies of one outbox continue with the same incarnation. If other gateways
        may receive the same, the id has neither incarnation nor wraps, because gateways count these differently. So one of the
        last values is then a duplicate also if the device has restarted, because its id would be that of the first copy.
        """
        state_key = self.key("counter")
        state = self.recall(state_key)
        incarnation, extended, newest, missing = self.nonce, counter.value, counter.value, _ALL_MISSING
        recent: tuple[CounterValue, ...] = ()
        if state is not None:
            step = serial_distance(state.second, counter.value, counter.width_bits)
            candidate = state.second + step
            near = -COUNTER_RESEND_DISTANCE <= step <= 0 <= candidate
            recent = tuple(each for each in state.recent if 0 <= self.age_s - each.age_s <= COUNTER_RESEND_S)
            copies = [each for each in recent if each.digest == self.payload]
            if near and any(each.value == candidate for each in copies):
                return KnownEvent()
            if self.arrival.shared and any((each.value - candidate) % (1 << counter.width_bits) == 0 for each in copies):
                return KnownEvent()  # by the counter without its wraps, as the flow compares gateways
            if step > 0:
                incarnation, extended, newest, missing = state.first, candidate, candidate, _further(state.third, step)
            elif near and state.third >> -step & 1:
                incarnation, extended, newest, missing = state.first, candidate, state.second, state.third & ~(1 << -step)
            elif step == 0 and 0 < sum(each.value == candidate for each in recent) < MAX_CONTENTS:
                extended, newest, missing = candidate, candidate, state.third
            else:
                recent = recent if self.arrival.shared else ()
        if not self.arrival.shared:
            recent = tuple(each for each in recent if newest - each.value <= COUNTER_RESEND_DISTANCE)
        recent = (*recent[-MAX_RECENT:], CounterValue(extended, self.payload, self.age_s))
        remember = ((state_key, MemoryEntry(self.payload, self.age_s, incarnation, newest, missing, recent)),)
        number = [_number(counter.value)] if self.arrival.shared else [_number(incarnation), _number(extended)]
        return NewEvent(self.id(3, *number, self.payload), self.surely, remember)

    def timed(self, time: bytes) -> NewEvent:
        """Tier 4: an equal payload at an equal time, not marked as a retransmission, is one more occurrence."""
        place = self.key("timed", time, self.payload)
        former = self.recall(place)
        occurrence = former.first + 1 if former else 1
        event_id = self.id(4, time, self.payload, _number(occurrence))
        return NewEvent(event_id, Dedup.SHARED if self.arrival.shared else Dedup.GOOD, ((place, self.trace(occurrence)),))

    def trace(self, first: int = 0) -> MemoryEntry:
        return MemoryEntry(self.payload, self.age_s, first)

    def id(self, tier: int, *key: bytes) -> str:
        return semantic_id(tier, self.tenant, self.arrival.device, self.arrival.channel, *key)

    def key(self, kind: str, *fields: bytes) -> bytes:
        """Return the 16-byte key of memory for this channel of the device."""
        return _hashed(kind.encode(), self.arrival.device.encode(), self.arrival.channel.encode(), *fields)


def report_key(arrival: Arrival) -> bytes:
    """Return the 16-byte key of memory for the last report of a channel."""
    return _hashed(b"report", arrival.device.encode(), arrival.channel.encode())


def _hashed(*fields: bytes) -> bytes:
    return hashlib.blake2b(b"".join([len(each).to_bytes(4, "big") + each for each in fields]), digest_size=16).digest()


def serial_distance(newest: int, value: int, width_bits: int) -> int:
    """Return the distance of `value` ahead of `newest`, modulo 2^width (RFC 1982 section 3.2); negative if behind."""
    size = 1 << width_bits
    ahead = (value - newest) % size
    return ahead if ahead < size // 2 else ahead - size


def _further(missing: int, step: int) -> int:
    """Return the bits of missing counters after the newest counter advanced by `step`."""
    step = min(step, COUNTER_RESEND_DISTANCE + 1)
    return (missing << step | (1 << step) - 2) & _ALL_MISSING


def _number(value: int) -> bytes:
    return b"%d" % value
