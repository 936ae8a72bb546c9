"""Decides by the identity that a device gives whether an arrival is new. Pure: a function looks up the memory.

The rules are those of `fogline.events.identity`. Each result has the entries to remember in the event's transaction. `age_s`:
the gateway's age in seconds (see `age`), which does not jump.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace

from fogline.events.event import Arrival
from fogline.events.identity import (
    Counter,
    Dedup,
    DeviceTime,
    Duplicates,
    RuleIdentity,
    SessionCounter,
    UniqueId,
    semantic_id,
)
from fogline.gateway.ledger import RuleOutcome
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
BARE_COUNTER = 3
"""The tier of a counter that wraps and restarts."""
_ALL_MISSING = (1 << COUNTER_RESEND_DISTANCE + 1) - 2

Recall = Callable[[bytes], MemoryEntry | None]


@dataclass(frozen=True, slots=True)
class KnownEvent:
    """The event is stored already. `remember`: entries to renew, by key. `rule`: the rule by which it is known, if one is."""

    remember: tuple[tuple[bytes, MemoryEntry], ...] = ()
    rule: str | None = None


@dataclass(frozen=True, slots=True)
class NewEvent:
    """A new event. `id` is None on tier 5, where stream and sequence give the id. `remember`: entries to write, by key.

    `outcome`: what a rule of the settings makes of it, or `CONFLICT` also without a rule: the device reused a key for another
    payload, and both events are kept. `original`: id of the earlier event that this one repeats, or whose key it has.
    """

    id: str | None
    dedup: Dedup
    remember: tuple[tuple[bytes, MemoryEntry], ...]
    outcome: RuleOutcome | None = None
    original: str | None = None


NO_IDENTITY = NewEvent(None, Dedup.WEAK, ())
"""Tier 5: the device gave no identity."""


def recognise(
    arrival: Arrival, payload: bytes, *, tenant: str, recall: Recall, age_s: int, nonce: int
) -> KnownEvent | NewEvent:
    """Decide by the identity that the device gave. Marked retransmissions are decided before (`resend_memory`).

    `payload`: the payload's digest, with the protocol's token if there is one. `nonce`: 63 random bits, which name a new
    incarnation of a counter if one begins.
    """
    rule = arrival.identity
    if rule is not None and rule.content is not None:
        return _Case(arrival, tenant, rule.content, recall, age_s, nonce, rule).identify()
    if arrival.evidence is None:
        return NO_IDENTITY
    if arrival.retransmission is not None and arrival.retransmission.token:
        payload = arrival.payload_digest()  # the token differs between exchanges and between gateways
    return _Case(arrival, tenant, payload, recall, age_s, nonce).identify()


@dataclass(frozen=True, slots=True)
class _Case:
    """One arrival with an identity. `payload`: the payload's digest. `rule`: the rule that gave the identity, if one did."""

    arrival: Arrival
    tenant: str
    payload: bytes
    recall: Recall
    age_s: int
    nonce: int
    rule: RuleIdentity | None = None

    def identify(self) -> KnownEvent | NewEvent:
        match self.arrival.evidence:
            case UniqueId(value):
                return self.named(1, value)
            case SessionCounter(session, counter):
                return self.named(2, session, _number(counter))
            case Counter() as counter:
                return self.counted(counter)
            case DeviceTime(time_ns) if self.rule is not None:
                return self.named(4, _number(time_ns))
            case DeviceTime(time_ns):
                return self.timed(_number(time_ns))
            case _:
                return NO_IDENTITY

    def surely(self, tier: int) -> Dedup:
        """Return the `dedup` attribute of an event with this identity."""
        if not self.arrival.shared:
            return Dedup.STRONG if tier <= BARE_COUNTER else Dedup.GOOD
        if self.rule is None or self.returns(tier):
            return Dedup.SHARED
        return Dedup.MARKED if self.rule.duplicates is Duplicates.MARK else Dedup.UNIQUE

    def returns(self, tier: int) -> bool:
        """Return True if the device uses a key again after some time."""
        return tier == BARE_COUNTER or (self.rule is not None and self.rule.window_s is not None)

    def named(self, tier: int, *key: bytes) -> KnownEvent | NewEvent:
        """Tiers 1 and 2, and 4 by a rule: the key identifies the event. With another payload it is a conflict; both are kept.

        The payload is part of the id, because two gateways may receive the two in another order, or only one of them. If the
        device uses keys again, and no other gateway receives it, the gateway's `nonce` is part of the id too.
        """
        if self.rule is not None and self.rule.duplicates is Duplicates.NONE:
            return NewEvent(self.id(tier, *key, self.payload), Dedup.NONE, (), RuleOutcome.IDENTIFIED)
        kind = f"{'named' if self.rule is None else 'rule'}{tier}"
        place = self.key(kind, *key)
        first = self.within_window(self.recall(place))
        if first is None:
            return self.first_of(tier, key, place)
        if first.digest == self.payload:
            return self.again(tier, key, place, first)
        # The two entries expire in this order.
        kept = MemoryEntry(first.digest, first.age_s if self.returns(tier) else self.age_s, first.first)
        other = self.key(kind, *key, self.payload)
        if (former := self.within_window(self.recall(other))) is not None:
            return self.again(tier, key, other, former, (place, kept))
        found = self.first_of(tier, key, other)
        original = self.named_id(tier, key, first)
        return replace(found, remember=((place, kept), *found.remember), outcome=RuleOutcome.CONFLICT, original=original)

    def first_of(self, tier: int, key: tuple[bytes, ...], place: bytes) -> NewEvent:
        """Return the event as the first one with this key and payload, to be remembered at `place`."""
        entry = self.trace(self.nonce if self.returns(tier) and not self.arrival.shared else 0)
        outcome = None if self.rule is None else RuleOutcome.IDENTIFIED
        return NewEvent(self.named_id(tier, key, entry), self.surely(tier), ((place, entry),), outcome)

    def again(
        self, tier: int, key: tuple[bytes, ...], place: bytes, former: MemoryEntry, *others: tuple[bytes, MemoryEntry]
    ) -> KnownEvent | NewEvent:
        """Return the event as one that repeats a `former` one, which is remembered at `place`."""
        renewed = self.age_s - former.age_s > RENEW_S and not self.returns(tier)
        remember = (*others, (place, self.trace(former.first))) if renewed else ()
        if self.rule is None or self.rule.duplicates is Duplicates.DROP:
            return KnownEvent(remember, None if self.rule is None else self.rule.rule)
        return NewEvent(None, Dedup.MARKED, remember, RuleOutcome.MARKED, self.named_id(tier, key, former))

    def within_window(self, entry: MemoryEntry | None) -> MemoryEntry | None:
        """Return the entry, unless the rule's window has passed since."""
        window_s = None if self.rule is None else self.rule.window_s
        return None if entry is None or (window_s is not None and self.age_s - entry.age_s > window_s) else entry

    def named_id(self, tier: int, key: tuple[bytes, ...], entry: MemoryEntry) -> str:
        """Return the id of the event that is remembered by an entry."""
        return self.id(tier, *key, entry.digest, *([_number(entry.first)] if entry.first else []))

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
        if self.rule is not None and self.rule.duplicates is Duplicates.NONE:
            return NewEvent(self.id(3, _number(counter.value), self.payload), Dedup.NONE, (), RuleOutcome.IDENTIFIED)
        resend_s = COUNTER_RESEND_S if self.rule is None else self.rule.window_s or COUNTER_RESEND_S
        known = KnownEvent((), None if self.rule is None else self.rule.rule)
        state_key = self.key("counter" if self.rule is None else "rule3")
        state = self.recall(state_key)
        incarnation, extended, newest, missing = self.nonce, counter.value, counter.value, _ALL_MISSING
        recent: tuple[CounterValue, ...] = ()
        if state is not None:
            step = serial_distance(state.second, counter.value, counter.width_bits)
            candidate = state.second + step
            near = -COUNTER_RESEND_DISTANCE <= step <= 0 <= candidate
            recent = tuple(each for each in state.recent if 0 <= self.age_s - each.age_s <= resend_s)
            copies = [each for each in recent if each.digest == self.payload]
            if near and any(each.value == candidate for each in copies):
                return known
            if self.arrival.shared and any((each.value - candidate) % (1 << counter.width_bits) == 0 for each in copies):
                return known  # by the counter without its wraps, as the flow compares gateways
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
        outcome = None if self.rule is None else RuleOutcome.IDENTIFIED
        return NewEvent(self.id(3, *number, self.payload), self.surely(3), remember, outcome)

    def timed(self, time: bytes) -> NewEvent:
        """Tier 4: an equal payload at an equal time, not marked as a retransmission, is one more occurrence."""
        place = self.key("timed", time, self.payload)
        former = self.recall(place)
        occurrence = former.first + 1 if former else 1
        event_id = self.id(4, time, self.payload, _number(occurrence))
        return NewEvent(event_id, self.surely(4), ((place, self.trace(occurrence)),))

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
