"""Is this arrival a resend, and if not, what is its identity? Pure: what is remembered comes in by a function.

The rules are those of `fogline.identity`; each answer says what has to be remembered with the event, in the same
transaction. `age_s` is the gateway's own running time in seconds, which no clock that jumps can change.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from fogline.event import Arrival
from fogline.identity import Counter, Dedup, DeviceTime, SessionCounter, UniqueId, digest, semantic_id

COUNTER_RESEND_S = 60
"""How long after the first copy the same counter value with the same payload is a resend."""
COUNTER_RESEND_DISTANCE = 16
"""How far behind the newest a counter may be and still be a late or repeated one."""
RENEW_S = 12 * 3600
"""What a device says again is remembered anew so often, as one that is silent is forgotten."""
_ALL_MISSING = (1 << COUNTER_RESEND_DISTANCE + 1) - 2


class Count(msgspec.Struct, frozen=True, array_like=True):
    """A value of a counter, without its wraps: the payload's digest, and when it came."""

    value: int
    digest: bytes
    age_s: int


class Trace(msgspec.Struct, frozen=True, array_like=True):
    """What is remembered under a key: a payload's digest, when (`age_s`), and numbers whose meaning the key gives.

    `recent`: of a counter, what a resend could repeat.
    """

    digest: bytes
    age_s: int
    first: int = 0
    second: int = 0
    third: int = 0
    recent: tuple[Count, ...] = ()


Recall = Callable[[bytes], Trace | None]


@dataclass(frozen=True, slots=True)
class Resend:
    """It is stored already. `remember`: key -> trace, of what is remembered for longer now."""

    remember: tuple[tuple[bytes, Trace], ...] = ()


@dataclass(frozen=True, slots=True)
class Fresh:
    """A new event. `id` is `None` on tier 5, where stream and sequence give it. `remember`: key -> trace.

    `conflict`: the device used an id again for something else; both are kept.
    """

    id: str | None
    dedup: Dedup
    remember: tuple[tuple[bytes, Trace], ...]
    conflict: bool = False


NOTHING_GIVEN = Fresh(None, Dedup.WEAK, ())
"""Tier 5: the device gave no identity."""


def recognise(arrival: Arrival, payload: bytes, *, tenant: str, recall: Recall, age_s: int, nonce: int) -> Resend | Fresh:
    """Decide by the identity that the device gave. `payload`: its digest, with the protocol's token if there is one.

    `nonce`: 63 random bits, the name of a new incarnation if one begins. What the protocol says of resends is decided
    before (`slots`).
    """
    if arrival.evidence is None:
        return NOTHING_GIVEN
    if arrival.retransmission is not None and arrival.retransmission.token:
        payload = digest(arrival.channel, arrival.data)  # another exchange, or another gateway, has another token
    return _Case(arrival, tenant, payload, recall, age_s, nonce).identify()


@dataclass(frozen=True, slots=True)
class _Case:
    """One arrival that gave something to go by. `payload`: its digest."""

    arrival: Arrival
    tenant: str
    payload: bytes
    recall: Recall
    age_s: int
    nonce: int

    def identify(self) -> Resend | Fresh:
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
                return NOTHING_GIVEN

    @property
    def surely(self) -> Dedup:
        """What is said of an event with a strong identity."""
        return Dedup.SHARED if self.arrival.shared else Dedup.STRONG

    def named(self, tier: int, *key: bytes) -> Resend | Fresh:
        """Tiers 1 and 2: the key says it; the same key with another payload is a conflict, and both are kept.

        The payload is part of the id, because two gateways need not hear the two in the same order, or both of them.
        """
        place = self.key(f"named{tier}", *key)
        former = self.recall(place)
        remember = [(place, self.trace())]
        conflict = former is not None and former.digest != self.payload
        if former is not None and conflict:
            other = self.key(f"named{tier}", *key, self.payload)
            remember = [(place, Trace(former.digest, self.age_s)), (other, self.trace())]  # forgotten in this order
            former = self.recall(other)
        if former is not None:
            return Resend(tuple(remember) if self.age_s - former.age_s > RENEW_S else ())
        return Fresh(self.id(tier, *key, self.payload), self.surely, tuple(remember), conflict)

    def counted(self, counter: Counter) -> Resend | Fresh:
        """Tier 3. Of the state, `first` is the incarnation, `second` the newest counter without its wraps.

        `third`: which of those behind it have not come, bit n for the newest less n. That one is not among the recent ones
        does not say so: they are forgotten sooner than the state. The payload is part of the id, because two
        copies of one outbox go on with the same incarnation. Where other gateways may hear the same, the id has neither
        incarnation nor wraps, which no two of them count alike.
        """
        state_key = self.key("counter")
        state = self.recall(state_key)
        incarnation, extended, newest, missing = self.nonce, counter.value, counter.value, _ALL_MISSING
        recent: tuple[Count, ...] = ()
        if state is not None:
            step = serial_distance(state.second, counter.value, counter.width_bits)
            candidate = state.second + step
            near = -COUNTER_RESEND_DISTANCE <= step <= 0 <= candidate
            recent = tuple(each for each in state.recent if 0 <= self.age_s - each.age_s <= COUNTER_RESEND_S)
            if near and any(each.value == candidate and each.digest == self.payload for each in recent):
                return Resend()
            if step > 0:
                incarnation, extended, newest, missing = state.first, candidate, candidate, _further(state.third, step)
            elif near and state.third >> -step & 1:
                incarnation, extended, newest, missing = state.first, candidate, state.second, state.third & ~(1 << -step)
            else:
                recent = ()
        near_ones = tuple(each for each in recent if newest - each.value <= COUNTER_RESEND_DISTANCE)
        recent = (*near_ones, Count(extended, self.payload, self.age_s))
        remember = ((state_key, Trace(self.payload, self.age_s, incarnation, newest, missing, recent)),)
        number = [_number(counter.value)] if self.arrival.shared else [_number(incarnation), _number(extended)]
        return Fresh(self.id(3, *number, self.payload), self.surely, remember)

    def timed(self, time: bytes) -> Fresh:
        """Tier 4: an equal payload at an equal time that nothing marks as a resend is one more occurrence."""
        place = self.key("timed", time, self.payload)
        former = self.recall(place)
        occurrence = former.first + 1 if former else 1
        event_id = self.id(4, time, self.payload, _number(occurrence))
        return Fresh(event_id, Dedup.SHARED if self.arrival.shared else Dedup.GOOD, ((place, self.trace(occurrence)),))

    def trace(self, first: int = 0) -> Trace:
        return Trace(self.payload, self.age_s, first)

    def id(self, tier: int, *key: bytes) -> str:
        return semantic_id(tier, self.tenant, self.arrival.device, self.arrival.channel, *key)

    def key(self, kind: str, *fields: bytes) -> bytes:
        """16 bytes under which something about this channel of the device is remembered."""
        return _hashed(kind.encode(), self.arrival.device.encode(), self.arrival.channel.encode(), *fields)


def report_key(arrival: Arrival) -> bytes:
    """16 bytes under which the last event of a channel is remembered."""
    return _hashed(b"report", arrival.device.encode(), arrival.channel.encode())


def _hashed(*fields: bytes) -> bytes:
    return hashlib.blake2b(b"".join([len(each).to_bytes(4, "big") + each for each in fields]), digest_size=16).digest()


def serial_distance(newest: int, value: int, width_bits: int) -> int:
    """How far `value` is ahead of `newest`, modulo 2^width (RFC 1982 section 3.2); negative if behind."""
    size = 1 << width_bits
    ahead = (value - newest) % size
    return ahead if ahead < size // 2 else ahead - size


def _further(missing: int, step: int) -> int:
    """What has not come, after the newest counter went `step` further."""
    step = min(step, COUNTER_RESEND_DISTANCE + 1)
    return (missing << step | (1 << step) - 2) & _ALL_MISSING


def _number(value: int) -> bytes:
    return b"%d" % value
