"""What Kafka and the tables hold of every stream."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from fogline.errors import Misconfigured, Poison
from fogline.gap import GAP_CONTENT_TYPE
from fogline.ledger import STATEMENT_CONTENT_TYPE, decode_statement
from fogline_cloud import topics
from fogline_cloud.bridge.admission import Known
from fogline_cloud.bridge.recovery import read_checkpoint
from fogline_cloud.kafka import KafkaClients
from fogline_cloud.ledger.balance import Evidence
from fogline_cloud.ledger.ranges import Span, collect
from fogline_cloud.reading import Stored, read_committed
from fogline_cloud.records import Place, is_replayed, place_of
from fogline_cloud.settings import Settings

Key = tuple[str, str]


class _Reader:
    """Collects one pass over Kafka and one over the tables."""

    def __init__(self) -> None:
        self.streams: dict[Key, Evidence] = {}
        self.kafka: dict[Key, list[Span]] = defaultdict(list)
        self.offsets: dict[Key, list[tuple[str, int, int, Span]]] = defaultdict(list)
        self.arrivals: dict[Key, list[int]] = defaultdict(list)
        self.table: dict[Key, list[Span]] = defaultdict(list)

    def stream(self, gateway: str, stream: str, lane: str) -> Evidence:
        return self.streams.setdefault((gateway, stream), Evidence(gateway, stream, lane))

    # --- Kafka

    def take_record(self, record: Stored) -> None:
        place = place_of(record.headers, record.value)
        if place is None:
            return
        key = (place.gateway, place.stream)
        evidence = self.stream(place.gateway, place.stream, place.lane.value)
        span = (place.first, place.last)
        self.kafka[key].append(span)
        self.offsets[key].append((record.topic, record.partition, record.offset, span))
        content_type = dict(record.headers).get("content-type", b"").decode()
        if content_type == STATEMENT_CONTENT_TYPE:
            self._take_statement(evidence, place, record.value)
        elif not is_replayed(dict(record.headers)):
            self.arrivals[key].append(place.last)
        if content_type == GAP_CONTENT_TYPE:
            evidence.gaps.append(span)

    def _take_statement(self, evidence: Evidence, place: Place, value: bytes) -> None:
        try:
            statement = decode_statement(value)
        except Poison:
            return
        if statement.stream == place.stream and place.last > evidence.statement_at:
            evidence.statement, evidence.statement_at = statement.counts, place.last

    # --- tables

    def take_rows(self, rows: Iterator[dict[str, Any]]) -> dict[tuple[str, int], int]:
        """Rows of `events`. Returns how far the flow has read, by topic and partition."""
        read: dict[tuple[str, int], int] = {}
        for row in rows:
            place = (row["topic"], row["partition"])
            read[place] = max(read.get(place, -1), row["offset"])
            if row["stream"] is not None:
                self.stream(row["gateway"], row["stream"], row["lane"])
                self.table[row["gateway"], row["stream"]].append((row["first_sequence"], row["sequence"]))
        return read

    def finish(self, read: dict[tuple[str, int], int], low: dict[tuple[str, int], int]) -> list[Evidence]:
        """Everything together. `low`: the first offset of each partition that Kafka still has."""
        for key, evidence in self.streams.items():
            evidence.kafka = collect(self.kafka[key])
            evidence.table = collect(self.table[key])
            evidence.gaps = collect(evidence.gaps).spans
            waiting = (span for topic, part, offset, span in self.offsets[key] if offset > read.get((topic, part), -1))
            evidence.pending = collect(waiting).spans
            evidence.arrivals_before = sum(1 for sequence in self.arrivals[key] if sequence < evidence.statement_at)
            if any(low.get((topic, part), 0) > 0 for topic, part, _, _ in self.offsets[key][:1]) or not self.kafka[key]:
                evidence.kafka_from = evidence.kafka.spans[0][0] if evidence.kafka.spans else evidence.table.last + 1
        return [self.streams[key] for key in sorted(self.streams)]


def gather(clients: KafkaClients, settings: Settings) -> list[Evidence]:
    """Read everything. Raises `Misconfigured` if Kafka or the topics are not there, `Unreachable` if reading fails."""
    topics.require(topics.raw_topics(settings.tenant), clients.topics())
    reader = _Reader()
    rows, readings = _tables(settings)  # before Kafka: so a row without a record is no matter of time
    read = reader.take_rows(iter(rows))
    places = {(name, shard): None for name in topics.raw_topics(settings.tenant) for shard in range(settings.shards)}
    low: dict[tuple[str, int], int] = {}
    for record in read_committed(clients, places):
        low.setdefault((record.topic, record.partition), record.offset)
        reader.take_record(record)
    evidence = reader.finish(read, {place: offset if offset > 1 else 0 for place, offset in low.items()})
    _add_readings(evidence, rows, readings)
    _add_bridge_counts(evidence, clients, settings)
    return evidence


def _tables(settings: Settings) -> tuple[list[dict[str, Any]], dict[tuple[str, str, int], int]]:
    """The rows of `events`, and how many rows of `readings` each event has."""
    base = settings.flow.tables
    columns = ["topic", "partition", "offset", "gateway", "stream", "lane", "first_sequence", "sequence", "outcome"]
    events = _open(f"{base}/events")
    if events is None:
        return [], {}
    table = events.to_pyarrow_table(columns=[*columns, "readings"])
    counts = pc.list_value_length(table["readings"]).fill_null(0)
    rows = table.drop_columns(["readings"]).append_column("values", counts).to_pylist()
    found: dict[tuple[str, str, int], int] = {}
    readings = _open(f"{base}/readings")
    if readings is not None:
        grouped = readings.to_pyarrow_table(columns=["gateway", "stream", "sequence", "ordinal"])
        grouped = grouped.group_by(["gateway", "stream", "sequence"]).aggregate([("ordinal", "count")])
        for row in grouped.to_pylist():
            found[row["gateway"], row["stream"], row["sequence"]] = row["ordinal_count"]
    return rows, found


def _open(location: str) -> DeltaTable | None:
    if "://" not in location and not Path(location, "_delta_log").is_dir():
        return None
    try:
        return DeltaTable(location)
    except DeltaError as error:
        raise Misconfigured(f"table {location} cannot be read: {error}") from None


def _add_readings(streams: list[Evidence], rows: list[dict[str, Any]], readings: dict[tuple[str, str, int], int]) -> None:
    missing: dict[Key, list[Span]] = defaultdict(list)
    double: dict[Key, list[Span]] = defaultdict(list)
    for row in rows:
        wanted = row["values"] if row["outcome"] == "ok" else 0
        there = readings.get((row["gateway"], row["stream"], row["sequence"]), 0)
        if there != wanted:
            kind = missing if there < wanted else double
            kind[row["gateway"], row["stream"]].append((row["sequence"], row["sequence"]))
    for evidence in streams:
        key = (evidence.gateway, evidence.stream)
        evidence.readings_missing = collect(missing[key]).spans
        evidence.readings_double = collect(double[key]).spans


def _add_bridge_counts(streams: list[Evidence], clients: KafkaClients, settings: Settings) -> None:
    known: dict[Key, Known] = {}
    for shard in range(settings.shards):
        known |= read_checkpoint(clients, settings.tenant, shard).streams
    for evidence in streams:
        if (entry := known.get((evidence.gateway, evidence.stream))) is not None:
            evidence.bridge_duplicate = entry.duplicate
            evidence.bridge_refused = entry.refused
