"""Reads the evidence about every stream from Kafka and the tables, some rows at a time."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from deltalake import DeltaTable

from fogline_cloud.flows.start.positions import of_events
from fogline_cloud.flows.start.topic_ids import topic_application
from fogline_cloud.flows.tables.delta_log import DeltaLog
from fogline_cloud.flows.tables.files import tables_in
from fogline_cloud.flows.tables.owner import Owner
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients, Partition, ids_of
from fogline_cloud.ledger.arrow_rows import stream_rows
from fogline_cloud.ledger.balance import StreamEvidence
from fogline_cloud.ledger.evidence import EvidenceReader
from fogline_cloud.ledger.marked_records import MarkedRecords, RecordsRead
from fogline_cloud.ledger.marked_tables import MarkedTables, TablesRead, with_stream
from fogline_cloud.ledger.readings import ReadingSums, differences
from fogline_cloud.settings import CloudSettings
from fogline_cloud.shard.admission import StreamKey, StreamState
from fogline_cloud.shard.recovery import read_checkpoint
from fogline_cloud.store.options import storage_of


@dataclass(frozen=True, slots=True)
class GatheredEvidence:
    """The evidence about every stream, and how it was read."""

    streams: list[StreamEvidence]
    tables: TablesRead
    kafka: RecordsRead


def gather(clients: KafkaClients, settings: CloudSettings, *, full: bool = False) -> GatheredEvidence:
    """Read all evidence. Rows and records that an earlier run read are not read again, unless `full`.

    Raises `Misconfigured` if Kafka or a topic is missing, `Unreachable` if reading fails.
    """
    existing = clients.topics()
    topics.require(topics.raw_topics(settings.tenant), existing)
    partitions = [(name, number) for name in topics.raw_topics(settings.tenant) for number in range(existing[name])]
    bounds = clients.bounds(partitions)
    low = {partition: first for partition, (first, _) in bounds.items()}
    reader = EvidenceReader(settings.tenant, low, _positions_in_new_topics(clients, settings, bounds))
    sums = ReadingSums()
    tables = MarkedTables(settings)
    tables.read(reader, sums, full=full)  # before Kafka, so that each row's record was already written
    records = MarkedRecords(clients, settings.tenant, tables.events.folder)
    records.read(reader, bounds, full=full, keep=tables.events.mark is not None)
    # Read again after the records: those above it were there to be read.
    later = {partition: first for partition, (first, _) in clients.bounds(partitions).items()}
    if later != low:
        tables.take_deleted(reader, later)
    for gateway, stream in sums.streams - reader.of_others:
        reader.stream(gateway, stream, "unknown")  # if Kafka and `events` lack the stream
    evidence = reader.finish()
    if settings.tables.keep_days is not None:
        for each in evidence:
            each.table_from = each.table.spans[0][0] if each.table.spans else 1
    begun = time.monotonic()
    _add_readings(evidence, sums, reader, tables)
    tables.summary.seconds += time.monotonic() - begun
    if topics.checkpoint(settings.tenant) in existing:  # Kafka hides it from an operator, because it may hold a secret
        _add_bridge_counts(evidence, clients, settings.tenant, existing[topics.checkpoint(settings.tenant)])
    return GatheredEvidence(evidence, tables.summary, records.summary)


def _positions_in_new_topics(
    clients: KafkaClients, settings: CloudSettings, bounds: Mapping[Partition, tuple[int, int]]
) -> dict[Partition, int]:
    """Return the flow's positions in raw topics that were created again since it began."""
    folder = tables_in(settings.flow.tables, storage_of(settings)).events
    if not DeltaTable.is_deltatable(folder.uri, folder.storage):
        return {}
    log = DeltaLog("events", folder)
    if not any(log.version_of(topic_application(settings.tenant, topic)) for topic in topics.raw_topics(settings.tenant)):
        return {}
    ids = ids_of(clients.describe({topic for topic, _ in bounds}))
    return of_events(Owner(settings.tenant, settings.flow.name, "", 0), log, ids, bounds).positions


def _add_readings(streams: list[StreamEvidence], sums: ReadingSums, reader: EvidenceReader, tables: MarkedTables) -> None:
    unequal = [each for each in sums.unequal() if each[0] not in reader.of_others]
    found = differences(
        unequal,
        lambda: (stream_rows(rows, tables.tenant) for rows in tables.rows_in(tables.events, unequal)),
        lambda: map(with_stream, tables.rows_in(tables.readings, unequal)),
    )
    for evidence in streams:
        key = (evidence.gateway, evidence.stream)
        for into, spans in (("missing", found.missing), ("double", found.double), ("phantom", found.phantom)):
            if key in spans:
                setattr(evidence, f"readings_{into}", spans[key].result().spans)


def _add_bridge_counts(streams: list[StreamEvidence], clients: KafkaClients, tenant: str, shards: int) -> None:
    known: dict[StreamKey, StreamState] = {}
    for shard in range(shards):
        known |= read_checkpoint(clients, tenant, shard).streams
    for evidence in streams:
        entry = known.get((evidence.gateway, evidence.stream))
        evidence.bridge_duplicate = entry.duplicate if entry is not None else 0
