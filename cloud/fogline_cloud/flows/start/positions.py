"""A query's positions in the raw topics (the next offset of each partition), from its checkpoint or from its tables."""

from collections.abc import Mapping
from operator import itemgetter

import msgspec
import pyarrow as pa
from deltalake import QueryBuilder

from fogline_cloud.flows.start.checkpoint_files import CheckpointFiles, QueryCheckpoint
from fogline_cloud.flows.start.topic_ids import topic_application
from fogline_cloud.flows.tables.batch import MicroBatch
from fogline_cloud.flows.tables.delta_log import DeltaLog
from fogline_cloud.flows.tables.owner import Owner
from fogline_cloud.flows.tables.schema import RETENTION
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients, Partition
from fogline_cloud.settings import CloudSettings

Positions = dict[Partition, int]
"""The offset of the next record of each partition. A partition without an entry was never read."""
Bounds = Mapping[Partition, tuple[int, int]]
"""The first offset that Kafka has of each partition, and its last stable offset."""

_LAST_OFFSETS = """
SELECT topic, "partition", flow, run, max("offset") AS last,
  max(batch) FILTER (WHERE reason IS DISTINCT FROM '{retention}') AS batch
FROM events WHERE tenant = '{tenant}' GROUP BY topic, "partition", flow, run
"""

_LAST_RAW_OFFSETS = """
SELECT topic, "partition", topic_id, max("offset") AS last
FROM raw WHERE tenant = '{tenant}' GROUP BY topic, "partition", topic_id
"""


class Landed(msgspec.Struct, frozen=True):
    """Contents of the tables. `unfinished`: batches that may have been interrupted after their commit to `events`."""

    positions: Positions
    unfinished: list[MicroBatch]


def position_application(tenant: str, partition: Partition, topic_id: str | None) -> str:
    """Return the Delta transaction application whose version is a position that no row shows."""
    return f"{topic_application(tenant, partition[0], topic_id)}/{partition[1]}"


def of_checkpoint(files: CheckpointFiles, checkpoint: QueryCheckpoint, decided: int, bounds: Bounds) -> Positions:
    """Return the positions of a checkpoint. `decided`: newest batch of this checkpoint in `events`.

    A partition that the checkpoint does not know was added to its topic since, and is read from offset 0.
    """
    known = files.read_up_to(checkpoint.landed(decided))
    return dict.fromkeys(bounds, 0) | known if known else {}


def of_events(owner: Owner, log: DeltaLog, ids: Mapping[str, str], bounds: Bounds) -> Landed:
    """Return the positions after the last row of each partition in `events`. A topic created again counts from its epoch.

    Reads the whole column of offsets, so only without a checkpoint. Rows of other flows count: each record has one row. If the
    table has rows, the positions begin at offset 0.
    """
    rows = _query(log, _LAST_OFFSETS.format(tenant=owner.tenant, retention=RETENTION)).to_pylist()  # nothing to quote
    runs = {row["run"] for row in rows}
    epochs = {run: log.version_of(msgspec.structs.replace(owner, run=run).application_of_run) or 0 for run in runs}
    since = {topic: log.version_of(topic_application(owner.tenant, topic)) or 0 for topic, _ in bounds}
    newest: dict[str, int] = {}
    last: dict[Partition, tuple[bool, int, MicroBatch]] = {}
    positions: Positions = dict.fromkeys(bounds, 0) if rows else {}
    for row in rows:
        partition: Partition = (row["topic"], row["partition"])
        of_this_topic = epochs[row["run"]] >= since.get(row["topic"], 0)
        if of_this_topic and partition in bounds:
            positions[partition] = max(positions.get(partition, 0), row["last"] + 1)
        if row["batch"] is not None and row["flow"] == owner.flow:
            newest[row["run"]] = max(newest.get(row["run"], -1), row["batch"])
            found = (of_this_topic, row["last"], MicroBatch(owner.flow, row["run"], row["batch"]))
            last[partition] = max(last.get(partition, found), found, key=itemgetter(0, 1))
    unfinished = {batch for _, _, batch in last.values() if newest[batch.run] == batch.number}
    return Landed(
        _complete(positions, owner, log, ids, bounds), sorted(unfinished, key=lambda batch: (batch.run, batch.number))
    )


def of_raw(owner: Owner, log: DeltaLog, ids: Mapping[str, str], bounds: Bounds) -> Positions:
    """Return the positions after the last row of each partition in `raw`. Rows of former topics of these names do not count.

    Reads the whole column of offsets, so only without a checkpoint.
    """
    rows = _query(log, _LAST_RAW_OFFSETS.format(tenant=owner.tenant)).to_pylist()  # nothing to quote
    positions: Positions = {}
    for row in rows:
        partition: Partition = (row["topic"], row["partition"])
        if partition in bounds and row["topic_id"] in (None, ids.get(row["topic"])):
            positions[partition] = max(positions.get(partition, 0), row["last"] + 1)
    return _complete(positions, owner, log, ids, bounds)


def _query(log: DeltaLog, sql: str) -> pa.Table:
    """Return the result of an SQL query, in which the table has its name. Runs in this process, on a stream of rows."""
    return pa.table(QueryBuilder().register(log.table, log.snapshot()).execute(sql).read_all())


def _complete(positions: Positions, owner: Owner, log: DeltaLog, ids: Mapping[str, str], bounds: Bounds) -> Positions:
    """Return the positions with those that no row shows."""
    for partition in bounds:
        if (known := log.version_of(position_application(owner.tenant, partition, ids.get(partition[0])))) is not None:
            positions[partition] = max(positions.get(partition, 0), known)
    return {partition: _after_marker(offset, bounds.get(partition)) for partition, offset in positions.items()}


def _after_marker(offset: int, bounds: tuple[int, int] | None) -> int:
    # The last stable record of a partition is always the marker that ends a bridge's transaction: it has no row, and if only
    # this one is gone, nothing is lost.
    return offset + 1 if bounds == (offset + 1, offset + 1) else offset


def require_topics(settings: CloudSettings) -> None:
    """Raise `Misconfigured` if a topic that the flow reads or writes is missing."""
    found = KafkaClients(settings.kafka).topics()
    derived = topics.derived_topics(settings.tenant, settings.flow.canonical.names)
    topics.require([*topics.raw_topics(settings.tenant), *derived], found)
