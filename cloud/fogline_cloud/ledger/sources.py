"""Reads the evidence about every stream from Kafka and the tables."""

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from fogline.errors import Misconfigured, Poison
from fogline.gap import GAP_CONTENT_TYPE, decode_gap
from fogline.ledger import STATEMENT_CONTENT_TYPE, decode_statement
from fogline_cloud import topics
from fogline_cloud.committed_records import CommittedRecord, read_committed
from fogline_cloud.flows.files import TableFolder
from fogline_cloud.flows.schema import EventOutcome
from fogline_cloud.kafka import KafkaClients, Partition
from fogline_cloud.ledger.balance import Loss, StreamEvidence
from fogline_cloud.ledger.ranges import Span, collect, size, without
from fogline_cloud.records import StreamPosition, is_replayed, known_position
from fogline_cloud.settings import CloudSettings
from fogline_cloud.shard.admission import StreamKey, StreamState
from fogline_cloud.shard.recovery import read_checkpoint


class RecordPosition(NamedTuple):
    """The position of a record in Kafka, and its sequences."""

    partition: Partition
    offset: int
    span: Span


class _Reader:
    def __init__(self) -> None:
        self.streams: dict[StreamKey, StreamEvidence] = {}
        self.kafka: dict[StreamKey, list[RecordPosition]] = defaultdict(list)
        self.table: dict[StreamKey, list[RecordPosition]] = defaultdict(list)
        self.arrivals: dict[StreamKey, list[int]] = defaultdict(list)
        self.losses: dict[StreamKey, dict[int, Loss]] = defaultdict(dict)

    def stream(self, gateway: str, stream: str, lane: str) -> StreamEvidence:
        return self.streams.setdefault((gateway, stream), StreamEvidence(gateway, stream, lane))

    def take_record(self, record: CommittedRecord) -> None:
        position = known_position(record.headers, record.value)
        if position is None:
            return
        key = (position.gateway, position.stream)
        evidence = self.stream(position.gateway, position.stream, position.lane.value)
        span = (position.first, position.last)
        self.kafka[key].append(RecordPosition((record.topic, record.partition), record.offset, span))
        headers = {name: value for name, value in dict(record.headers).items() if value is not None}
        content_type = headers.get("content-type", b"").decode("utf-8", "replace")
        if content_type == STATEMENT_CONTENT_TYPE:
            self._take_statement(evidence, position, record.value)
        elif content_type == GAP_CONTENT_TYPE:
            evidence.gaps.append(span)
            self._take_loss(key, position, record.value)
        elif not is_replayed(headers):
            self.arrivals[key].append(position.last)

    def _take_loss(self, key: StreamKey, position: StreamPosition, value: bytes) -> None:
        try:
            gap = decode_gap(value)
        except Poison:
            return
        lost = f" ({gap.lost.first}..{gap.lost.last} of stream {gap.lost.stream})" if gap.lost and gap.lost.first else ""
        self.losses[key][position.last] = Loss(position.first, position.last, gap.reason.value, gap.detail + lost)

    def _take_statement(self, evidence: StreamEvidence, position: StreamPosition, value: bytes) -> None:
        try:
            statement = decode_statement(value)
        except Poison:
            return
        if statement.stream == position.stream and position.last > evidence.statement_at:
            evidence.statement, evidence.statement_at = statement.counts, position.last
            evidence.closed_at = position.last if statement.closed else evidence.closed_at

    def take_rows(self, rows: Iterable[dict[str, Any]]) -> dict[Partition, int]:
        """Add rows of `events`. Return the last offset that the flow has read of each partition."""
        read: dict[Partition, int] = {}
        for row in rows:
            partition = (row["topic"], row["partition"])
            read[partition] = max(read.get(partition, -1), row["offset"])
            if row["stream"] is not None:
                self.stream(row["gateway"], row["stream"], row["lane"])
                position = RecordPosition(partition, row["offset"], (row["first_sequence"], row["sequence"]))
                key = (row["gateway"], row["stream"])
                self.table[key].append(position)
                if row["outcome"] == EventOutcome.GAP:
                    loss = Loss(row["first_sequence"], row["sequence"], row["reason"] or "", row["detail"] or "")
                    self.losses[key].setdefault(row["sequence"], loss)
        return read

    def finish(self, read: dict[Partition, int], low: dict[Partition, int]) -> list[StreamEvidence]:
        """Return the evidence. `low`: the first offset that Kafka still has of each partition."""
        for key, evidence in self.streams.items():
            evidence.kafka = collect(at.span for at in self.kafka[key])
            evidence.table = collect(at.span for at in self.table[key])
            evidence.gaps = collect(evidence.gaps).spans
            evidence.losses = [loss for _, loss in sorted(self.losses[key].items())]
            waiting = (at.span for at in self.kafka[key] if at.offset > read.get(at.partition, -1))
            evidence.pending = without(collect(waiting).spans, evidence.table.spans)
            evidence.arrivals_before = len({number for number in self.arrivals[key] if number < evidence.statement_at})
            evidence.gaps_before = size(span for span in evidence.gaps if span[1] < evidence.statement_at)
            deleted = (at.span[1] for at in self.table[key] if at.offset < low.get(at.partition, 0))
            evidence.kafka_from = max(deleted, default=0) + 1
        return [self.streams[key] for key in sorted(self.streams)]


def gather(clients: KafkaClients, settings: CloudSettings) -> list[StreamEvidence]:
    """Read all evidence. Raises `Misconfigured` if Kafka or a topic is missing, `Unreachable` if reading fails."""
    existing = clients.topics()
    topics.require(topics.raw_topics(settings.tenant), existing)
    reader = _Reader()
    rows, readings = _tables(settings)  # before Kafka, so that each row's record was already written
    read = reader.take_rows(rows)
    partitions = {(name, shard): None for name in topics.raw_topics(settings.tenant) for shard in range(settings.shards)}
    for record in read_committed(clients, partitions):
        reader.take_record(record)
    for gateway, stream in {(gateway, stream) for gateway, stream, _ in readings}:
        reader.stream(gateway, stream, "unknown")  # if Kafka and `events` lack the stream
    # Read after the records: those above `low` were there to be read.
    low = {partition: first for partition, (first, _) in clients.bounds(partitions).items()}
    evidence = reader.finish(read, low)
    _add_readings(evidence, rows, readings)
    if topics.checkpoint(settings.tenant) in existing:  # Kafka hides it from an operator, because it may hold a secret
        _add_bridge_counts(evidence, clients, settings)
    return evidence


ReadingCounts = dict[tuple[str, str, int], tuple[int, int]]
"""By gateway, stream and sequence of an event: the number of rows in `readings`, and of different rows."""


def _tables(settings: CloudSettings) -> tuple[list[dict[str, Any]], ReadingCounts]:
    flow = settings.flow
    columns = [
        *("tenant", "topic", "partition", "offset", "gateway", "stream", "lane"),
        *("first_sequence", "sequence", "outcome", "reason", "detail"),
    ]
    events = _open(TableFolder(f"{flow.tables.rstrip('/')}/events", flow.storage))
    if events is None:
        return [], {}
    table = events.to_pyarrow_table(columns=[*columns, "readings"])
    counts = pc.list_value_length(table["readings"]).fill_null(0)
    every = table.drop_columns(["readings"]).append_column("values", counts).to_pylist()
    rows = [row for row in every if row["tenant"] in {settings.tenant, None}]
    others = {(row["gateway"], row["stream"]) for row in every} - {(row["gateway"], row["stream"]) for row in rows}
    found: ReadingCounts = {}
    readings = _open(TableFolder(f"{flow.tables.rstrip('/')}/readings", flow.storage))
    if readings is not None:
        grouped = readings.to_pyarrow_table(columns=["gateway", "stream", "sequence", "ordinal"])
        grouped = grouped.group_by(["gateway", "stream", "sequence"])
        for row in grouped.aggregate([("ordinal", "count"), ("ordinal", "count_distinct")]).to_pylist():
            if row["stream"] is not None and (row["gateway"], row["stream"]) not in others:
                found[row["gateway"], row["stream"], row["sequence"]] = (row["ordinal_count"], row["ordinal_count_distinct"])
    return rows, found


def _open(folder: TableFolder) -> DeltaTable | None:
    if "://" not in folder.path and not Path(folder.path, "_delta_log").is_dir():
        return None
    try:
        return DeltaTable(folder.uri, storage_options=folder.storage)
    except TableNotFoundError:
        return None
    except (DeltaError, OSError) as error:
        line = str(error).partition("\n")[0]
        raise Misconfigured(f"table {folder.path} cannot be read: {line} (see [flow.storage])") from None


def _add_readings(streams: list[StreamEvidence], rows: list[dict[str, Any]], readings: ReadingCounts) -> None:
    missing: dict[StreamKey, list[Span]] = defaultdict(list)
    double: dict[StreamKey, list[Span]] = defaultdict(list)
    phantom: dict[StreamKey, list[Span]] = defaultdict(list)
    wanted: dict[tuple[str, str, int], int] = {}
    for row in rows:
        if row["stream"] is not None:
            event = (row["gateway"], row["stream"], row["sequence"])
            wanted[event] = max(wanted.get(event, 0), row["values"] if row["outcome"] == "ok" else 0)
    for event in wanted.keys() | readings.keys():
        gateway, stream, sequence = event
        count, different = readings.get(event, (0, 0))
        if event not in wanted:
            phantom[gateway, stream].append((sequence, sequence))
            continue
        if different < wanted[event]:
            missing[gateway, stream].append((sequence, sequence))
        if count > min(different, wanted[event]):
            double[gateway, stream].append((sequence, sequence))
    for evidence in streams:
        key = (evidence.gateway, evidence.stream)
        evidence.readings_missing = collect(missing[key]).spans
        evidence.readings_double = collect(double[key]).spans
        evidence.readings_phantom = collect(phantom[key]).spans


def _add_bridge_counts(streams: list[StreamEvidence], clients: KafkaClients, settings: CloudSettings) -> None:
    known: dict[StreamKey, StreamState] = {}
    for shard in range(settings.shards):
        known |= read_checkpoint(clients, settings.tenant, shard).streams
    for evidence in streams:
        entry = known.get((evidence.gateway, evidence.stream))
        evidence.bridge_duplicate = entry.duplicate if entry is not None else 0
