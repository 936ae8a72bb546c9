"""Identity from the payload: the fields that say which events are the same.

Their values, in the canonical encoding, are the evidence of tiers 1 to 4 (`fogline.events.identity`). So the id of an event
depends on nothing that another gateway would not know. Pure.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from fogline.errors import Misconfigured
from fogline.events.event import Arrival, rfc3339
from fogline.events.identity import Counter, DeviceTime, Duplicates, Evidence, RuleIdentity, SessionCounter, UniqueId
from fogline_edge.rule_settings import IdentityTable
from fogline_edge.rules.canonical import NotCanonicalError, canonical, name_of
from fogline_edge.rules.explanation import RuleStep, shown
from fogline_edge.rules.fields import Field, parse_field
from fogline_edge.rules.payload import MISSING, Payload
from fogline_edge.rules.selection import RuleSelection

_MAX_COUNT = (1 << 64) - 1
MIN_SHARED_WINDOW_S = 60
"""The ledger takes rows of one gateway with one id as two events only if they are nearly so far apart (its `identities`)."""
_FORMS = (
    "fields = ['/serial', '/sequence']",
    "time = true",
    "session = '/boot' and counter = '/n'",
    "counter = '/n' and counter_bits = 16",
)


@dataclass(frozen=True, slots=True)
class _Rule:
    """One table, with its fields parsed. A bare counter is the only tier with `counter_bits`."""

    table: IdentityTable
    fields: tuple[Field, ...]
    session: Field | None
    counter: Field | None

    def evidence(self, arrival: Arrival, payload: Payload) -> Evidence | None:
        """Return what identifies the event; None if the event lacks something of it."""
        if self.counter is not None:
            return self._counted(self.counter, payload)
        if self.table.time and arrival.time_ns is None:
            return None
        key = b""
        for field in self.fields:
            if (value := _named_value(payload, field)) is None:
                return None
            key += value
        if not self.table.time or arrival.time_ns is None:
            return UniqueId(key)
        return UniqueId(key + canonical(arrival.time_ns)) if key else DeviceTime(arrival.time_ns)

    def _counted(self, field: Field, payload: Payload) -> Evidence | None:
        counter, bits = _count(payload.value(field)), self.table.counter_bits
        if counter is None or (bits is not None and counter >> bits):
            return None
        if bits is not None:
            return Counter(counter, bits)
        session = _named_value(payload, self.session) if self.session is not None else None
        return None if session is None else SessionCounter(session, counter)

    def missing(self, arrival: Arrival, payload: Payload) -> list[str]:
        """Return what an event lacks, for people."""
        fields = [each for each in (*self.fields, self.session, self.counter) if each is not None]
        missing = [each.text or "the document" for each in fields if _named_value(payload, each) is None]
        if self.table.time and arrival.time_ns is None:
            missing.append("the device's time")
        if not missing and self.counter is not None:
            missing.append(f"a count of {self.table.counter_bits or 64} bits in {self.counter.text}")
        return missing

    def shown_key(self, arrival: Arrival, payload: Payload) -> str:
        """Return the key of an event, for people."""
        fields = [each for each in (*self.fields, self.session, self.counter) if each is not None]
        parts = [f"{each.text or 'the document'} = {shown(payload.value(each))}" for each in fields]
        if self.table.time and arrival.time_ns is not None:
            parts.append(f"the device's time = {rfc3339(arrival.time_ns)}")
        return ", ".join(parts)


class IdentityRules:
    """The tables `[[rules.identity]]`. Raises `Misconfigured`."""

    def __init__(self, tables: Sequence[IdentityTable]) -> None:
        self._selection = RuleSelection("rules.identity", [(each, _rule_of(each)) for each in tables])

    def identify(self, arrival: Arrival, payload: Payload) -> Arrival:
        """Return the arrival with its evidence by the first rule that applies and whose fields it has.

        Without one, the arrival keeps the evidence of its protocol, and names the first rule that applies.
        """
        rules = self._selection.of(arrival)
        for each in rules:
            if (evidence := each.evidence(arrival, payload)) is not None:
                table = each.table
                identity = RuleIdentity(table.name, _content(payload), table.duplicates, table.window_s)
                return replace(arrival, evidence=evidence, shared=table.shared, identity=identity)
        return replace(arrival, identity=RuleIdentity(rules[0].table.name, None)) if rules else arrival

    def explain(self, arrival: Arrival, payload: Payload) -> Iterator[RuleStep]:
        """Yield what these rules do with an arrival."""
        for each in self._selection.of(arrival):
            name = each.table.name
            if each.evidence(arrival, payload) is not None:
                yield RuleStep("identity", name, f"the key is {each.shown_key(arrival, payload)}: {_treatment(each.table)}")
                return
            lacks = ", ".join(each.missing(arrival, payload))
            yield RuleStep("identity", name, f"the event lacks {lacks}: this rule gives it no identity")


def _rule_of(table: IdentityTable) -> _Rule:
    key = f"rules.identity {table.name}"
    by_counter = table.counter is not None
    forms = (
        bool(table.fields or table.time) and not by_counter and table.session is None and table.counter_bits is None,
        by_counter and (table.session is None) != (table.counter_bits is None) and not table.fields and not table.time,
    )
    if not any(forms):
        raise Misconfigured(f"{key}: expected one of {'; '.join(_FORMS)}")
    if table.counter_bits is not None and table.duplicates is Duplicates.MARK:
        raise Misconfigured(f"{key}: duplicates = 'mark' cannot be used with counter_bits: name fields, or a session")
    if table.shared and table.window_s is not None and table.window_s < MIN_SHARED_WINDOW_S:
        raise Misconfigured(f"{key}: window_s = {table.window_s}: with shared = true at least {MIN_SHARED_WINDOW_S}")
    if table.shared and table.window_s is not None and table.duplicates is Duplicates.MARK:
        raise Misconfigured(f"{key}: duplicates = 'mark' with shared = true: leave window_s out, or use 'drop'")
    session, counter = (
        None if text is None else parse_field(text, f"{key}: {name}")
        for name, text in (("session", table.session), ("counter", table.counter))
    )
    return _Rule(table, tuple(parse_field(each, f"{key}: fields") for each in table.fields), session, counter)


def _treatment(table: IdentityTable) -> str:
    where = "from any gateway" if table.shared else "at this gateway"
    within = f" within {table.window_s:,} s" if table.window_s is not None else ""
    match table.duplicates:
        case Duplicates.DROP:
            return f"a second event with this key and content{within}, {where}, is not stored again"
        case Duplicates.MARK:
            return f"a second event with this key and content{within}, {where}, is stored and marked"
        case Duplicates.NONE:
            return "events with this key and content get the same id, and are not compared"


def _named_value(payload: Payload, field: Field) -> bytes | None:
    """Return a field's name and value in canonical form. A null is no value: devices send it before they have one."""
    value = payload.value(field)
    if value is MISSING or value is None:
        return None
    try:
        return name_of(field.text) + canonical(value)
    except NotCanonicalError:
        return None


def _count(value: object) -> int | None:
    """Return a counter: an integer, or bytes as an unsigned one, the most significant byte first."""
    if isinstance(value, bytes):
        value = int.from_bytes(value, "big")
    elif isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and 0 <= value <= _MAX_COUNT else None


def _content(payload: Payload) -> bytes:
    """Return the digest of the payload: of its values if it is a document, else of its bytes."""
    document = payload.document
    try:
        data = b"v" + canonical(document)
    except NotCanonicalError:
        data = b"r" + payload.data
    return hashlib.blake2b(data, digest_size=16).digest()
