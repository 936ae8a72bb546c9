"""Derives rows of `readings` and records of the derived topics from rows of `events`. Pure: Arrow in, values out.

JSON: a canonical record holds the readings of one event, a fleet record `FLEET_EVENTS` events of one gateway. No member: null.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache, partial
from itertools import chain, repeat
from typing import Any, NamedTuple, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from fogline.events.gap import GapReason
from fogline_cloud.canonical_settings import CanonicalSettings
from fogline_cloud.flows.tables import schema
from fogline_cloud.flows.tables.schema import EventOutcome, arrow_schema
from fogline_cloud.flows.worker.row_headers import COLUMNS, headers_of
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.records import Headers

FLEET_EVENTS = 200
"""Largest number of events in one fleet record."""
MAX_COPIED_BYTES = 512 * 1024
"""Largest body that is copied into the slow and dead topics. A larger one is only in `events` (`fogline_body: table`)."""
MAX_JSON_BYTES = 512 * 1024
"""Largest JSON record; a longer one is split, because Kafka takes 1 MiB. One reading alone is never longer."""

READINGS = arrow_schema(schema.in_file(schema.READINGS))
"""Columns of table `readings` in its files."""
_OWN = ("ordinal", "metric", "value", "text", "unit")
_WITH_BODY = pa.array([GapReason.REFUSED.value, GapReason.QUARANTINED.value])
_UNPARSABLE = pa.array([EventOutcome.DEAD.value, EventOutcome.SKIP.value])
_ENCODER = msgspec.json.Encoder()
_JSON: Headers = [("content-type", b"application/json")]

T = TypeVar("T")


class DerivedRecord(NamedTuple):
    """A record to produce."""

    topic: str
    key: bytes | None
    value: bytes
    headers: Headers


def reading_rows(events: pa.Table) -> pa.Table:
    """Return the rows of table `readings` that belong to these rows of `events`."""
    parsed = _parsed(events)
    of_event, own = _own_columns(parsed)
    columns = [own[name] if name in own else parsed.column(name).take(of_event) for name in READINGS.names]
    return pa.table(columns, schema=READINGS)


def count_readings(events: pa.Table) -> int:
    """Return the number of rows of table `readings` that belong to these rows of `events`."""
    return pc.sum(pc.list_value_length(_parsed(events).column("readings"))).as_py() or 0


def derived_records(
    events: pa.Table,
    tenant: str,
    canonical: CanonicalSettings = CanonicalSettings(),  # noqa: B008 - it is frozen
) -> Iterator[DerivedRecord]:
    """Yield every record of the derived topics."""
    outcome = events.column("outcome")
    refused = pc.and_(pc.equal(outcome, EventOutcome.GAP.value), pc.is_in(events.column("reason"), _WITH_BODY))
    unparsable = pc.or_(pc.is_in(outcome, _UNPARSABLE), pc.fill_null(refused, False))
    return chain(
        canonical_records(events, tenant, canonical),
        _raw_again(events.filter(pc.equal(outcome, EventOutcome.SLOW.value)), topics.slow(tenant)),
        _raw_again(events.filter(unparsable), topics.dead(tenant)),
        _fleet(events, topics.fleet(tenant)),
    )


def _parsed(events: pa.Table) -> pa.Table:
    return events.filter(pc.equal(events.column("outcome"), EventOutcome.OK.value))


def _own_columns(parsed: pa.Table) -> tuple[pa.Array, dict[str, pa.Array]]:
    """Return the event of each reading, and the columns that differ between the readings of one event."""
    lists = parsed.column("readings").combine_chunks()
    of_event = pc.list_parent_indices(lists)
    flat = pc.list_flatten(lists)
    columns = {name: pc.struct_field(flat, name) for name in _OWN}
    of_events = (parsed.column(name).take(of_event) for name in ("time", "recordedtime"))
    return of_event, columns | {"time": pc.coalesce(pc.struct_field(flat, "time"), *of_events)}


class _Reading(msgspec.Struct, omit_defaults=True, gc=False):
    ordinal: int | None = None
    metric: str | None = None
    value: float | None = None
    text: str | None = None
    unit: str | None = None
    time: str | None = None


class _Canonical(msgspec.Struct, omit_defaults=True, gc=False):
    source: str | None = None
    id: str | None = None
    device: str | None = None
    recordedtime: str | None = None
    readings: list[_Reading] = []


def canonical_records(events: pa.Table, tenant: str, settings: CanonicalSettings) -> Iterator[DerivedRecord]:
    """Yield the records of readings, one for each event that has some. The key is the device and the time bucket."""
    parsed = _parsed(events)
    _, own = _own_columns(parsed)
    found = list(map(_Reading, *_columns(pa.table(own), (*_OWN, "time"))))
    counts = pc.list_value_length(parsed.column("readings")).to_pylist()
    begin = 0
    columns = _columns(parsed, ("source", "id", "device", "recordedtime"))
    places = zip(_canonical_topics(parsed, tenant, settings), _buckets(parsed, settings.bucket_s), strict=True)
    for count, (topic, bucket), source, name, device, recorded in zip(counts, places, *columns, strict=True):
        readings = found[begin : begin + count]
        begin += count
        for value in _within_limit(readings, partial(_Canonical, source, name, device, recorded)) if count else ():
            yield DerivedRecord(topic, (device + bucket).encode(), value, _JSON)


def _canonical_topics(parsed: pa.Table, tenant: str, settings: CanonicalSettings) -> Iterable[str]:
    """Return the topic of each event: that of the first rule that matches."""
    if not settings.topics:
        return repeat(topics.canonical(tenant), parsed.num_rows)

    @cache
    def topic_of(*event: str | None) -> str:
        for rule in settings.topics:
            patterns = (rule.type, rule.lane, rule.device, rule.subject)
            if all(fnmatchcase(value or "", pattern) for value, pattern in zip(event, patterns, strict=True)):
                return topics.canonical_topic(tenant, rule.name)
        return topics.canonical(tenant)

    return map(topic_of, *_columns(parsed, ("type", "lane", "device", "subject")))


def _buckets(parsed: pa.Table, bucket_s: int) -> Iterable[str]:
    """Return for each event what its key has after the device: `/` and the begin of its time bucket."""
    if not bucket_s:
        return repeat("", parsed.num_rows)
    seconds = pc.divide(parsed.column("recordedtime").cast(pa.int64()), bucket_s * 1_000_000)
    begins = pc.multiply(seconds, bucket_s).cast(pa.timestamp("s", "UTC"))
    return ("" if begin is None else f"/{begin}" for begin in _texts(begins))


EVENT_METADATA = tuple(
    column for column in schema.in_file(schema.EVENTS) if column.name not in {"data", "readings", "detail", "properties"}
)
"""Members of an entry of a fleet record, besides `readings`, the number of readings."""
_Fleet = msgspec.defstruct(
    "_Fleet", [*((column.name, Any, None) for column in EVENT_METADATA), ("readings", Any, None)], omit_defaults=True, gc=False
)


def _fleet(events: pa.Table, topic: str) -> Iterator[DerivedRecord]:
    """Yield the metadata of every event, without what its device sent. The key is the gateway."""
    counts = pc.list_value_length(events.column("readings")).to_pylist()
    entries = map(_Fleet, *_columns(events, [column.name for column in EVENT_METADATA]), counts)
    by_gateway: dict[str | None, list[Any]] = {}
    for gateway, each in zip(events.column("gateway").to_pylist(), entries, strict=True):
        by_gateway.setdefault(gateway, []).append(each)
    for gateway, some in by_gateway.items():
        for begin in range(0, len(some), FLEET_EVENTS):
            for value in _within_limit(some[begin : begin + FLEET_EVENTS], list):
                yield DerivedRecord(topic, None if gateway is None else gateway.encode(), value, _JSON)


def _within_limit(items: list[T], document: Callable[[list[T]], Any]) -> Iterator[bytes]:
    """Yield JSON documents of items. A document longer than `MAX_JSON_BYTES` holds one item only."""
    value = _ENCODER.encode(document(items))
    if len(value) <= MAX_JSON_BYTES or len(items) == 1:
        yield value
        return
    middle = len(items) // 2
    yield from _within_limit(items[:middle], document)
    yield from _within_limit(items[middle:], document)


def _columns(rows: pa.Table, names: Iterable[str]) -> list[list[Any]]:
    columns = (rows.column(name) for name in names)
    return [_texts(each) if pa.types.is_timestamp(each.type) else each.to_pylist() for each in columns]


def _texts(times: pa.ChunkedArray) -> list[str | None]:
    # Many events share a time, so each distinct one is formatted once.
    encoded = times.combine_chunks().dictionary_encode()
    texts: list[str | None] = pc.take(pc.strftime(encoded.dictionary, "%Y-%m-%dT%H:%M:%SZ"), encoded.indices).to_pylist()
    return texts


def _raw_again(events: pa.Table, topic: str) -> Iterator[DerivedRecord]:
    """Yield the raw records, with the reason in headers `fogline_reason` and `fogline_detail`. The key is the device."""
    columns = dict(zip(names := [*COLUMNS, "reason", "detail", "size_bytes", "data"], _columns(events, names), strict=True))
    for cells in zip(*columns.values(), strict=True):
        row = dict(zip(names, cells, strict=True))
        key = None if row["device"] is None else row["device"].encode()
        yield DerivedRecord(topic, key, *_copied(row))


def _copied(row: Mapping[str, Any]) -> tuple[bytes, Headers]:
    headers = headers_of(row)
    headers += [(f"fogline_{name}", row[name].encode()) for name in ("reason", "detail") if row[name] is not None]
    if len(row["data"] or b"") > MAX_COPIED_BYTES:
        return b"", [*headers, ("fogline_body", b"table")]
    return row["data"] or b"", headers
