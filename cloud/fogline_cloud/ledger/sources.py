"""What Kafka and the tables hold of every stream."""

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
from fogline_cloud.bridge.admission import Known
from fogline_cloud.bridge.recovery import read_checkpoint
from fogline_cloud.flows.files import Folder
from fogline_cloud.flows.outcome import MAX_SEQUENCE
from fogline_cloud.flows.schema import Outcome
from fogline_cloud.kafka import KafkaClients, end_offset
from fogline_cloud.ledger.balance import Evidence, Loss
from fogline_cloud.ledger.ranges import Span, collect, without
from fogline_cloud.reading import Stored, read_committed
from fogline_cloud.records import Place, is_replayed, place_of
from fogline_cloud.settings import Settings

Key = tuple[str, str]
"""Gateway and stream."""
Partition = tuple[str, int]


class At(NamedTuple):
    """Where something numbered stands in Kafka, or stood when the flow read it."""

    partition: Partition
    offset: int
    span: Span


class _Reader:
    """Collects one pass over Kafka and one over the tables."""

    def __init__(self) -> None:
        self.streams: dict[Key, Evidence] = {}
        self.kafka: dict[Key, list[At]] = defaultdict(list)
        self.table: dict[Key, list[At]] = defaultdict(list)
        self.arrivals: dict[Key, list[int]] = defaultdict(list)
        self.losses: dict[Key, dict[int, Loss]] = defaultdict(dict)

    def stream(self, gateway: str, stream: str, lane: str) -> Evidence:
        return self.streams.setdefault((gateway, stream), Evidence(gateway, stream, lane))

    # --- Kafka

    def take_record(self, record: Stored) -> None:
        place = _place(record)
        if place is None:
            return
        key = (place.gateway, place.stream)
        evidence = self.stream(place.gateway, place.stream, place.lane.value)
        span = (place.first, place.last)
        self.kafka[key].append(At((record.topic, record.partition), record.offset, span))
        headers = {name: value for name, value in dict(record.headers).items() if value is not None}
        content_type = headers.get("content-type", b"").decode("utf-8", "replace")
        if content_type == STATEMENT_CONTENT_TYPE:
            self._take_statement(evidence, place, record.value)
        elif content_type == GAP_CONTENT_TYPE:
            evidence.gaps.append(span)
            self._take_loss(key, place, record.value)
        elif not is_replayed(headers):
            self.arrivals[key].append(place.last)

    def _take_loss(self, key: Key, place: Place, value: bytes) -> None:
        try:
            gap = decode_gap(value)
        except Poison:
            return
        lost = f" ({gap.lost.first}..{gap.lost.last} of stream {gap.lost.stream})" if gap.lost and gap.lost.first else ""
        self.losses[key][place.last] = Loss(place.first, place.last, gap.reason.value, gap.detail + lost)

    def _take_statement(self, evidence: Evidence, place: Place, value: bytes) -> None:
        try:
            statement = decode_statement(value)
        except Poison:
            return
        if statement.stream == place.stream and place.last > evidence.statement_at:
            evidence.statement, evidence.statement_at = statement.counts, place.last
            evidence.closed_at = place.last if statement.closed else evidence.closed_at

    # --- tables

    def take_rows(self, rows: Iterable[dict[str, Any]]) -> dict[Partition, int]:
        """Rows of `events`. Returns how far the flow has read."""
        read: dict[Partition, int] = {}
        for row in rows:
            partition = (row["topic"], row["partition"])
            read[partition] = max(read.get(partition, -1), row["offset"])
            if row["stream"] is not None:
                self.stream(row["gateway"], row["stream"], row["lane"])
                at = At(partition, row["offset"], (row["first_sequence"], row["sequence"]))
                key = (row["gateway"], row["stream"])
                self.table[key].append(at)
                if row["outcome"] == Outcome.GAP:
                    loss = Loss(row["first_sequence"], row["sequence"], row["reason"] or "", row["detail"] or "")
                    self.losses[key].setdefault(row["sequence"], loss)
        return read

    def finish(self, read: dict[Partition, int], low: dict[Partition, int]) -> list[Evidence]:
        """Everything together. `low`: the first offset of each partition that Kafka still has."""
        for key, evidence in self.streams.items():
            evidence.kafka = collect(at.span for at in self.kafka[key])
            evidence.table = collect(at.span for at in self.table[key])
            evidence.gaps = collect(evidence.gaps).spans
            evidence.losses = [loss for _, loss in sorted(self.losses[key].items())]
            waiting = (at.span for at in self.kafka[key] if at.offset > read.get(at.partition, -1))
            evidence.pending = without(collect(waiting).spans, evidence.table.spans)
            evidence.arrivals_before = len({number for number in self.arrivals[key] if number < evidence.statement_at})
            evidence.gaps_before = sum(last - first + 1 for first, last in evidence.gaps if last < evidence.statement_at)
            let_go = (at.span[1] for at in self.table[key] if at.offset < low.get(at.partition, 0))
            evidence.kafka_from = max(let_go, default=0) + 1
        return [self.streams[key] for key in sorted(self.streams)]


def gather(clients: KafkaClients, settings: Settings) -> list[Evidence]:
    """Read everything. Raises `Misconfigured` if Kafka or the topics are not there, `Unreachable` if reading fails."""
    topics.require(topics.raw_topics(settings.tenant), clients.topics())
    reader = _Reader()
    rows, readings = _tables(settings)  # before Kafka: so a row without a record is no matter of time
    read = reader.take_rows(rows)
    places = {(name, shard): None for name in topics.raw_topics(settings.tenant) for shard in range(settings.shards)}
    for record in read_committed(clients, places):
        reader.take_record(record)
    for gateway, stream in {(gateway, stream) for gateway, stream, _ in readings}:
        reader.stream(gateway, stream, "unknown")  # if nothing else has heard of it
    evidence = reader.finish(read, _low(clients, places))  # after reading: what is above it was there to be read
    _add_readings(evidence, rows, readings)
    _add_bridge_counts(evidence, clients, settings)
    return evidence


def _place(record: Stored) -> Place | None:
    """Its place as far as it can be told, as the flow tells it: a gap record that is not readable is its last number."""
    without_type = [header for header in record.headers if header[0] != "content-type"]
    for headers in (record.headers, without_type):
        try:
            place = place_of(headers, record.value)
        except Poison:
            continue
        return place if place is not None and 1 <= place.first <= place.last <= MAX_SEQUENCE else None
    return None


def _low(clients: KafkaClients, places: Iterable[Partition]) -> dict[Partition, int]:
    probe = clients.reader(committed=False)
    try:
        return {place: end_offset(probe, *place)[0] for place in places}
    finally:
        probe.close()


Found = dict[tuple[str, str, int], tuple[int, int]]
"""Of an event (gateway, stream, sequence): how many rows `readings` has, and how many different ones."""


def _tables(settings: Settings) -> tuple[list[dict[str, Any]], Found]:
    """The tenant's rows of `events`, and what `readings` has of each event. Other tenants may have rows there too."""
    flow = settings.flow
    columns = [
        *("tenant", "topic", "partition", "offset", "gateway", "stream", "lane"),
        *("first_sequence", "sequence", "outcome", "reason", "detail"),
    ]
    events = _open(Folder(f"{flow.tables.rstrip('/')}/events", flow.storage))
    if events is None:
        return [], {}
    table = events.to_pyarrow_table(columns=[*columns, "readings"])
    counts = pc.list_value_length(table["readings"]).fill_null(0)
    every = table.drop_columns(["readings"]).append_column("values", counts).to_pylist()
    rows = [row for row in every if row["tenant"] in {settings.tenant, None}]
    others = {(row["gateway"], row["stream"]) for row in every} - {(row["gateway"], row["stream"]) for row in rows}
    found: Found = {}
    readings = _open(Folder(f"{flow.tables.rstrip('/')}/readings", flow.storage))
    if readings is not None:
        grouped = readings.to_pyarrow_table(columns=["gateway", "stream", "sequence", "ordinal"])
        grouped = grouped.group_by(["gateway", "stream", "sequence"])
        for row in grouped.aggregate([("ordinal", "count"), ("ordinal", "count_distinct")]).to_pylist():
            if row["stream"] is not None and (row["gateway"], row["stream"]) not in others:
                place = (row["gateway"], row["stream"], row["sequence"])
                found[place] = (row["ordinal_count"], row["ordinal_count_distinct"])
    return rows, found


def _open(folder: Folder) -> DeltaTable | None:
    """The table, `None` if there is none yet. Raises `Misconfigured` if it cannot be read."""
    if "://" not in folder.path and not Path(folder.path, "_delta_log").is_dir():
        return None
    try:
        return DeltaTable(folder.uri, storage_options=folder.storage)
    except TableNotFoundError:
        return None
    except (DeltaError, OSError) as error:
        line = str(error).partition("\n")[0]
        raise Misconfigured(f"table {folder.path} cannot be read: {line} (see [flow.storage])") from None


def _add_readings(streams: list[Evidence], rows: list[dict[str, Any]], readings: Found) -> None:
    missing: dict[Key, list[Span]] = defaultdict(list)
    double: dict[Key, list[Span]] = defaultdict(list)
    phantom: dict[Key, list[Span]] = defaultdict(list)
    wanted: dict[tuple[str, str, int], int] = {}
    for row in rows:
        if row["stream"] is not None:
            place = (row["gateway"], row["stream"], row["sequence"])
            wanted[place] = max(wanted.get(place, 0), row["values"] if row["outcome"] == "ok" else 0)
    for place in wanted.keys() | readings.keys():
        gateway, stream, sequence = place
        count, different = readings.get(place, (0, 0))
        if place not in wanted:
            phantom[gateway, stream].append((sequence, sequence))
            continue
        if different < wanted[place]:
            missing[gateway, stream].append((sequence, sequence))
        if count > min(different, wanted[place]):
            double[gateway, stream].append((sequence, sequence))
    for evidence in streams:
        key = (evidence.gateway, evidence.stream)
        evidence.readings_missing = collect(missing[key]).spans
        evidence.readings_double = collect(double[key]).spans
        evidence.readings_phantom = collect(phantom[key]).spans


def _add_bridge_counts(streams: list[Evidence], clients: KafkaClients, settings: Settings) -> None:
    known: dict[Key, Known] = {}
    for shard in range(settings.shards):
        known |= read_checkpoint(clients, settings.tenant, shard).streams
    for evidence in streams:
        if (entry := known.get((evidence.gateway, evidence.stream))) is not None:
            evidence.bridge_duplicate = entry.duplicate
            evidence.bridge_refused = entry.refused
