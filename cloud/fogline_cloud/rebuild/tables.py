"""How far table `events` has each stream of the tenant, read without Spark."""

from typing import Any

import msgspec
import pyarrow as pa
from deltalake import QueryBuilder

from fogline.events.event import Lane
from fogline_cloud.flows.start.topic_ids import topic_application
from fogline_cloud.flows.tables.owner import Owner
from fogline_cloud.flows.tables.schema import RETENTION
from fogline_cloud.flows.tables.table_log import TableLog
from fogline_cloud.kafka.clients import Partition
from fogline_cloud.rebuild.held import StreamTail, TableProgress

_TAILS = """
SELECT gateway, stream, lane, "partition", max(sequence) AS last FROM events
WHERE tenant = '{tenant}' AND stream IS NOT NULL GROUP BY gateway, stream, lane, "partition"
"""
_LAST = """
SELECT topic, "partition", run, max("offset") FILTER (WHERE stream IS NOT NULL) AS last
FROM events WHERE tenant = '{tenant}' GROUP BY topic, "partition", run
"""
_CLIENTS = """
SELECT count(*) AS records FROM events WHERE tenant = '{tenant}' AND stream IS NULL AND run IN ({runs})
AND (reason IS DISTINCT FROM '{retention}') AND topic = '{topic}' AND "partition" = {partition} AND "offset" > {last}
"""


def events_progress(log: TableLog, owner: Owner) -> TableProgress:
    """Return how far table `events` has the records. `owner`: the flow. Nothing in these queries needs quotes."""
    rows = _query(log, _TAILS.format(tenant=owner.tenant))
    tails = {(row["gateway"], row["stream"], row["partition"]): StreamTail(Lane(row["lane"]), row["last"]) for row in rows}
    clients: dict[Partition, int] = {}
    for (topic, partition), (last, runs) in _newest(log, owner).items():
        where = {"tenant": owner.tenant, "retention": RETENTION, "topic": topic, "partition": partition, "last": last}
        (found,) = _query(log, _CLIENTS.format(**where, runs=", ".join(f"'{run}'" for run in runs)))
        clients[topic, partition] = found["records"]
    return TableProgress(tails, clients)


def _newest(log: TableLog, owner: Owner) -> dict[Partition, tuple[int, list[str]]]:
    """Return by partition the last offset of a record with a stream, and the runs, as far as rows are of the present topics."""
    found: dict[Partition, tuple[int, list[str]]] = {}
    for row in _query(log, _LAST.format(tenant=owner.tenant)):
        epoch = log.version_of(msgspec.structs.replace(owner, run=row["run"]).application_of_run) or 0
        if epoch >= (log.version_of(topic_application(owner.tenant, row["topic"])) or 0):
            last, runs = found.get((row["topic"], row["partition"]), (-1, []))
            newest = last if row["last"] is None else max(last, row["last"])
            found[row["topic"], row["partition"]] = (newest, [*runs, row["run"]])
    return found


def _query(log: TableLog, sql: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pa.table(
        QueryBuilder().register(log.table, log.snapshot()).execute(sql).read_all()
    ).to_pylist()
    return rows
