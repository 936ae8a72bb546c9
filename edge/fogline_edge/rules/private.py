"""Private fields: dropped, rounded, or replaced by a keyed hash, before anything of the event is stored. Pure.

Every table that applies to an arrival is performed, in the order of the settings. A payload with fields by pointer is written
anew from its document, because its bytes may hold a field twice. A payload without a document may hold the secret anywhere: its
body is withheld. So are the bodies of all dead letters, of which nobody knows what they are.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal
from fnmatch import translate
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

import msgspec

from fogline.dead_letter import DEAD_TYPE, decode_dead_letter
from fogline.errors import Misconfigured
from fogline.events.event import Arrival, Lane
from fogline.gateway.ledger import RuleOutcome
from fogline.process.files.tls_files import check_private
from fogline_edge.rule_settings import PrivateTable
from fogline_edge.rules.canonical import NotCanonicalError, canonical
from fogline_edge.rules.explanation import RuleStep, shown
from fogline_edge.rules.fields import BytesField, Field, PointerField, parse_field
from fogline_edge.rules.payload import MISSING, Payload, follow, is_cbor
from fogline_edge.rules.selection import RuleSelection

WITHHELD_CONTENT_TYPE = "application/vnd.fogline-withheld"
"""Content type of an event whose body is withheld: a JSON object with the rule, the length, and a digest if there is a key."""
MIN_KEY_BYTES = 16
_HASH_BYTES = 16
_PERSON = b"fogline-private"

Count = Callable[[Lane, str, RuleOutcome], None]


@dataclass(frozen=True, slots=True)
class _Rule:
    """One table, with its fields parsed. `key`: of the hashes, None without any."""

    table: PrivateTable
    drop: tuple[Field, ...]
    round: tuple[tuple[PointerField, Decimal], ...]
    hash: tuple[Field, ...]
    key: bytes | None
    device: re.Pattern[str]

    @property
    def needs_document(self) -> bool:
        return bool(self.round) or any(isinstance(each, PointerField) for each in (*self.drop, *self.hash))

    def protect(self, arrival: Arrival) -> tuple[Arrival, RuleOutcome]:
        """Return the arrival without its private fields, and what was done."""
        arrival = msgspec.structs.replace(arrival, properties=self._properties(arrival.properties))
        if not self.needs_document:
            return msgspec.structs.replace(arrival, data=self._bytes(arrival.data)), RuleOutcome.PROTECTED
        document = Payload(arrival.content_type, arrival.data).document
        try:
            data = None if document is MISSING else _encode(self._document(document), arrival.content_type)
        except (NotCanonicalError, TypeError, ValueError, OverflowError, RecursionError):
            data = None
        if data is None:
            return self.withhold(arrival), RuleOutcome.WITHHELD
        return msgspec.structs.replace(arrival, data=data), RuleOutcome.PROTECTED

    def withhold(self, arrival: Arrival) -> Arrival:
        """Return the arrival without its body."""
        body = {"rule": self.table.name, "bytes": len(arrival.data), **self._digest(arrival.data)}
        return msgspec.structs.replace(arrival, content_type=WITHHELD_CONTENT_TYPE, data=msgspec.json.encode(body))

    def withhold_letter(self, arrival: Arrival) -> Arrival:
        """Return a dead letter without the message in it."""
        letter = decode_dead_letter(arrival.data)
        found = "".join(f", {name} {value}" for name, value in self._digest(letter.body).items())
        detail = f"{letter.detail} (rule {self.table.name} withholds the body: {len(letter.body)} bytes{found})"
        kept = msgspec.structs.replace(letter, detail=detail, body_base64="")
        return msgspec.structs.replace(arrival, data=msgspec.json.encode(kept))

    def _digest(self, data: bytes) -> dict[str, str]:
        return {} if self.key is None else {"digest": self._hash(data)}

    def _hash(self, data: bytes) -> str:
        assert self.key is not None
        return hashlib.blake2b(data, digest_size=_HASH_BYTES, key=self.key, person=_PERSON).hexdigest()

    def _document(self, document: Any) -> Any:
        for field in self.drop:
            assert isinstance(field, PointerField)
            document = _change(document, field, lambda _: MISSING)
        for pointer, step in self.round:
            document = _change(document, pointer, partial(_rounded, step))
        for field in self.hash:
            assert isinstance(field, PointerField)
            document = _change(document, field, lambda value: self._hash(canonical(value)))
        return document

    def _bytes(self, data: bytes) -> bytes:
        for field in (*self.drop, *self.hash):
            assert isinstance(field, BytesField)
            part = data[field.first : field.last + 1]
            size = len(part)
            whole = size == field.last + 1 - field.first
            new = bytes.fromhex(self._hash(part))[:size] if field in self.hash and whole else bytes(size)
            data = data[: field.first] + new.ljust(size, b"\0") + data[field.first + size :]
        return data

    def _properties(self, query: str | None) -> str | None:
        if query is None or not self.table.drop_properties:
            return query
        kept = [each for each in parse_qsl(query, keep_blank_values=True) if each[0] not in self.table.drop_properties]
        return urlencode(kept) or None


class PrivateRules:
    """The tables `[[rules.private]]`. Raises `Misconfigured`, also for a key file that others may read."""

    def __init__(self, tables: Sequence[PrivateTable]) -> None:
        self._all = [_rule_of(table) for table in tables]
        self._rules = RuleSelection("rules.private", list(zip(tables, self._all, strict=True)))

    def protect(self, arrival: Arrival, count: Count) -> Arrival:
        """Return the arrival without private fields. `count`: counts what a rule did with an event of a lane."""
        if arrival.type == DEAD_TYPE:
            count(arrival.lane, self._all[0].table.name, RuleOutcome.WITHHELD)
            return self._all[0].withhold_letter(arrival)
        for rule in self._applying(arrival):
            arrival, outcome = rule.protect(arrival)
            count(arrival.lane, rule.table.name, outcome)
        return arrival

    def names(self, arrival: Arrival) -> list[str]:
        """Return the names of the rules that protect fields of an event, whatever its payload is."""
        return [each.table.name for each in self._rules.of(arrival)]

    def explain(self, arrival: Arrival) -> list[RuleStep]:
        """Return what the rules do with an arrival, step by step."""
        steps = []
        for rule in self._applying(arrival):
            before = arrival
            arrival, outcome = rule.protect(arrival)
            steps.append(RuleStep("private", rule.table.name, _effect(rule, before, arrival, outcome)))
        return steps

    def _applying(self, arrival: Arrival) -> Sequence[_Rule]:
        """Return the rules of an arrival. A reply has no channel of its own, so that all rules of its device apply."""
        if arrival.outcome is None:
            return self._rules.of(arrival)
        return [each for each in self._all if arrival.data and each.device.fullmatch(arrival.device)]


def _effect(rule: _Rule, before: Arrival, after: Arrival, outcome: RuleOutcome) -> str:
    """Return what a rule does with an event, and the payload that is left, for people."""
    if outcome is RuleOutcome.WITHHELD:
        return "the body is withheld, because it is no document in which the fields could be found"
    payload, properties = Payload(before.content_type, before.data), dict(parse_qsl(before.properties or ""))

    def there(fields: Iterable[Field]) -> list[str]:
        return [each.text or "the document" for each in fields if payload.value(each) is not MISSING]

    words = {
        "dropped": there(rule.drop) + [each for each in rule.table.drop_properties if each in properties],
        "rounded": there(field for field, _ in rule.round),
        "hashed": there(rule.hash),
    }
    done = [f"{', '.join(fields)} {'is' if len(fields) == 1 else 'are'} {word}" for word, fields in words.items() if fields]
    left = shown(after.data.decode("utf-8", "backslashreplace"))
    return f"{'; '.join(done) or 'the event has none of its fields'}; the payload that is left is {left}"


def _rule_of(table: PrivateTable) -> _Rule:
    where = f"rules.private {table.name}"
    drop = tuple(parse_field(each, f"{where}: drop") for each in table.drop)
    hashed = tuple(parse_field(each, f"{where}: hash") for each in table.hash)
    rounded = [(parse_field(name, f"{where}: round"), Decimal(str(step))) for name, step in table.round.items()]
    if not (drop or hashed or rounded or table.drop_properties):
        raise Misconfigured(
            f"{where}: it protects nothing: expected drop, round, hash or drop_properties, such as drop = ['/name']"
        )
    pointers = [(field, step) for field, step in rounded if isinstance(field, PointerField)]
    ranges = [each for each in (*drop, *hashed) if isinstance(each, BytesField)]
    if len(pointers) < len(rounded):
        raise Misconfigured(f"{where}: round is for numbers of a document, such as round = {{ '/temperature' = 0.5 }}")
    if ranges and (pointers or len(ranges) < len(drop) + len(hashed)):
        raise Misconfigured(f"{where}: ranges of bytes and fields of a document exclude each other; write two rules")
    if hashed and table.key_file is None:
        raise Misconfigured(f"{where}: hash needs key_file, such as key_file = 'private.key' (made by: openssl rand -hex 32)")
    device = re.compile(translate(table.device))
    return _Rule(table, drop, tuple(pointers), hashed, _key_of(table.key_file, where), device)


def _key_of(path: str | None, where: str) -> bytes | None:
    if path is None:
        return None
    check_private(path, f"{where}: key_file")
    try:
        text = Path(path).read_bytes().strip()
    except OSError as error:
        raise Misconfigured(f"{where}: key_file: cannot read {path}: {error.strerror}") from None
    if len(text) < MIN_KEY_BYTES:
        raise Misconfigured(f"{where}: key_file: {path} has less than {MIN_KEY_BYTES} bytes. Make one: openssl rand -hex 32")
    return hashlib.blake2b(text, digest_size=32).digest()


def _change(document: Any, pointer: PointerField, change: Callable[[Any], Any]) -> Any:
    """Return the document with the value at a pointer changed; `MISSING` from `change` removes it. Changes it in place."""
    value = follow(document, pointer)
    if value is MISSING:
        return document
    new = change(value)
    if not pointer.tokens:
        return None if new is MISSING else new
    parent = follow(document, PointerField("", pointer.tokens[:-1]))
    at: Any = pointer.tokens[-1] if isinstance(parent, dict) else int(pointer.tokens[-1])
    if new is MISSING and isinstance(parent, dict):
        del parent[at]
    else:
        parent[at] = None if new is MISSING else new
    return document


def _rounded(step: Decimal, value: Any) -> Any:
    """Return the nearest multiple of `step`; `MISSING` for what is no number: it may hold the number in words."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return MISSING
    exact = Decimal(str(value))
    if not exact.is_finite():
        return MISSING
    found = (exact / step).to_integral_value(ROUND_HALF_EVEN) * step
    return int(found) if found == found.to_integral_value() and isinstance(value, int) else float(found)


def _encode(document: Any, content_type: str) -> bytes:
    if not is_cbor(content_type):
        return msgspec.json.encode(document)
    import cbor2  # noqa: PLC0415 - costs 1 MB, and few gateways have rules over CBOR

    try:
        return cbor2.dumps(document)
    except cbor2.CBOREncodeError as error:
        raise ValueError(str(error)) from None
