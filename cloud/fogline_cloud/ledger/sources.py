"""Reads the evidence about every stream from Kafka and the tables, some rows at a time."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from fogline.errors import Misconfigured
from fogline_cloud import topics
from fogline_cloud.committed_records import read_committed
from fogline_cloud.flows.delta_log import state_of
from fogline_cloud.flows.files import TableFolder
from fogline_cloud.flows.table_features import reader_problems
from fogline_cloud.kafka import KafkaClients
from fogline_cloud.ledger.arrow_rows import TYPES, conformed
from fogline_cloud.ledger.balance import StreamEvidence
from fogline_cloud.ledger.evidence import EvidenceReader
from fogline_cloud.ledger.readings import ReadingSums, differences
from fogline_cloud.settings import CloudSettings
from fogline_cloud.shard.admission import StreamKey, StreamState
from fogline_cloud.shard.recovery import read_checkpoint

_ROWS = 1 << 18  # rows of a table that are in memory at the same time, about
_EVENTS = (
    *("tenant", "topic", "partition", "offset", "gateway", "stream", "lane"),
    *("first_sequence", "sequence", "outcome", "reason", "detail", "values"),
)
_GAPS = ("tenant", "topic", "partition", "offset", "stream", "outcome", "reason", "detail")
_READINGS = ("gateway", "stream", "sequence", "ordinal")


class TableReader:
    """Reads columns of a table's present version. A table that does not exist is empty."""

    def __init__(self, folder: TableFolder, columns: Sequence[str]) -> None:
        self.folder = folder
        self._columns = columns
        table = _open(folder)
        self._sizes: dict[str, int] = {}  # of each file
        if table is not None:
            if found := reader_problems(state_of(table, folder.path)):
                raise Misconfigured(found[0])
            files = pa.table(table.get_add_actions(flatten=True))
            self._sizes = dict(zip(files.column("path").to_pylist(), files.column("size_bytes").to_pylist(), strict=True))

    def rows(self) -> Iterator[pa.Table]:
        """Yield every row, many at a time. Column `values` is the length of the list `readings`."""
        waiting: list[pa.Table] = []
        for batch in self._batches():
            waiting.append(batch)
            if sum(map(len, waiting)) >= _ROWS:
                yield conformed(pa.concat_tables(waiting), self._columns)
                waiting = []
        if waiting:
            yield conformed(pa.concat_tables(waiting), self._columns)

    def _batches(self) -> Iterator[pa.Table]:
        if not self._sizes:
            return
        system = self.folder.file_system(self._sizes)
        texts = [name for name in self._columns if pa.types.is_dictionary(TYPES[name])]
        for path in self._sizes:
            with system.open_input_file(path) as source:
                file = pq.ParquetFile(source, read_dictionary=texts)
                for batch in file.iter_batches(_ROWS, columns=self._leaves(file)):
                    yield conformed(self._counted(pa.Table.from_batches([batch])), self._columns)

    def _leaves(self, file: pq.ParquetFile) -> list[str]:
        """Return the columns to read. Of the list of readings, one member tells its length."""
        paths = [file.schema.column(number).path for number in range(len(file.schema))]
        ordinals = [path for path in paths if path.startswith("readings.") and path.endswith(".ordinal")]
        return [path for path in paths if path in self._columns] + ordinals * ("values" in self._columns)

    @staticmethod
    def _counted(rows: pa.Table) -> pa.Table:
        if "readings" not in rows.column_names:
            return rows
        return rows.append_column("values", pc.fill_null(pc.list_value_length(rows.column("readings")), 0))


def gather(clients: KafkaClients, settings: CloudSettings) -> list[StreamEvidence]:
    """Read all evidence. Raises `Misconfigured` if Kafka or a topic is missing, `Unreachable` if reading fails."""
    existing = clients.topics()
    topics.require(topics.raw_topics(settings.tenant), existing)
    partitions = {(name, shard): None for name in topics.raw_topics(settings.tenant) for shard in range(settings.shards)}
    low = {partition: first for partition, (first, _) in clients.bounds(partitions).items()}
    reader, sums = EvidenceReader(settings.tenant, low), ReadingSums()
    tables = read_tables(settings, reader, sums)  # before Kafka, so that each row's record was already written
    for record in read_committed(clients, partitions):
        reader.take_record(record)
    # Read again after the records: those above it were there to be read.
    later = {partition: first for partition, (first, _) in clients.bounds(partitions).items()}
    if later != low:
        for rows in tables[0].rows():
            reader.take_deleted(reader.ours(rows), later)
    for gateway, stream in sums.streams - reader.of_others:
        reader.stream(gateway, stream, "unknown")  # if Kafka and `events` lack the stream
    evidence = reader.finish()
    if settings.tables.keep_days is not None:
        for each in evidence:
            each.table_from = each.table.spans[0][0] if each.table.spans else 1
    _add_readings(evidence, sums, reader, tables)
    if topics.checkpoint(settings.tenant) in existing:  # Kafka hides it from an operator, because it may hold a secret
        _add_bridge_counts(evidence, clients, settings)
    return evidence


def read_tables(settings: CloudSettings, reader: EvidenceReader, sums: ReadingSums) -> tuple[TableReader, TableReader]:
    """Read both tables once, `events` first. Returns their readers."""
    flow = settings.flow
    events = TableReader(TableFolder(f"{flow.tables.rstrip('/')}/events", flow.storage), _EVENTS)
    for rows in TableReader(events.folder, _GAPS).rows():
        reader.accept(rows)
    for rows in events.rows():
        sums.expect(reader.take_rows(rows))
    readings = TableReader(TableFolder(f"{flow.tables.rstrip('/')}/readings", flow.storage), _READINGS)
    for rows in readings.rows():
        sums.find(_with_stream(rows))
    return events, readings


def _with_stream(rows: pa.Table) -> pa.Table:
    return rows.filter(rows.column("stream").is_valid())


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


def _add_readings(
    streams: list[StreamEvidence], sums: ReadingSums, reader: EvidenceReader, tables: tuple[TableReader, TableReader]
) -> None:
    unequal = [each for each in sums.unequal() if each[0] not in reader.of_others]
    events, readings = tables
    found = differences(unequal, lambda: map(reader.ours, events.rows()), lambda: map(_with_stream, readings.rows()))
    for evidence in streams:
        key = (evidence.gateway, evidence.stream)
        for into, spans in (("missing", found.missing), ("double", found.double), ("phantom", found.phantom)):
            if key in spans:
                setattr(evidence, f"readings_{into}", spans[key].result().spans)


def _add_bridge_counts(streams: list[StreamEvidence], clients: KafkaClients, settings: CloudSettings) -> None:
    known: dict[StreamKey, StreamState] = {}
    for shard in range(settings.shards):
        known |= read_checkpoint(clients, settings.tenant, shard).streams
    for evidence in streams:
        entry = known.get((evidence.gateway, evidence.stream))
        evidence.bridge_duplicate = entry.duplicate if entry is not None else 0
