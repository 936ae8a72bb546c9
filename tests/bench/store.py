"""Tables in a folder and on a real S3 server: commits, and a whole flow; and the flow on one executor and on two.

Each executor has a quarter of a core, and nothing in common with the driver but Kafka and the S3 server.
"""

import statistics
import time
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
from bridge import bare_producer
from deltalake import DeltaTable
from flow import BATCHES, SHARDS, rate
from processes import BIN, Bench, Failed

from fogline_cloud.flows.tables.batch import MicroBatch
from fogline_cloud.flows.tables.delta_log import DeltaLog
from fogline_cloud.flows.tables.files import FileWriter, TableFolder
from fogline_cloud.flows.tables.owner import Owner
from fogline_cloud.flows.tables.schema import EVENTS, MEASURED, arrow_schema, in_file
from fogline_lab.cpu_quota import cpu_quota
from fogline_lab.object_store import BUCKET, ObjectStore
from fogline_lab.spark_cluster import SparkCluster
from fogline_lab.supervisor import run_to_end

COMMITS = 100
QUOTA = 0.25
"""Share of one CPU that each worker of the cluster has, with its executor and Python workers."""
OWNER = Owner("bench", "main", "run-1", 1)


def measure(bench: Bench) -> dict[str, float]:
    """The one after the other, on one server."""
    with ObjectStore(bench.folder / "store") as store:
        places = {
            "folder": TableFolder(str(bench.subfolder("commits"))),
            "s3": TableFolder(f"s3://{BUCKET}/commits-{bench.number}", store.options()),
        }
        commits = {name: commit_ms(folder) for name, folder in places.items()}
        tenant = f"store{bench.number}"
        bare_producer(bench, tenant, SHARDS, bench.events * 2)
        folder = str(bench.subfolder("tables"))
        on_folder, _ = flow(bench, tenant, bench.events * 2, folder, "")
        on_s3, _ = flow(bench, tenant, bench.events * 2, f"s3://{BUCKET}/flow-{bench.number}", stored(bench, store))
        one, two = (on_cluster(bench, store, tenant, count) for count in (1, 2))
    return {
        "store.commit_folder": commits["folder"],
        "store.commit_s3": commits["s3"],
        "store.commit_ratio": commits["s3"] / commits["folder"],
        "store.flow_folder": on_folder,
        "store.flow_s3": on_s3,
        "store.flow_ratio": on_s3 / on_folder,
        "store.one": one,
        "store.two": two,
        "store.executors": two / one,
    }


def commit_ms(folder: TableFolder) -> float:
    """Return the median of the milliseconds of a commit of one small file."""
    schema = arrow_schema(in_file(EVENTS))
    DeltaTable.create(
        folder.uri, schema.append(pa.field("day", pa.date32())), partition_by=["day"], storage_options=folder.storage
    )
    log = DeltaLog("events", folder)
    log.take_over(OWNER, {})
    row = dict.fromkeys(schema.names) | {"ingested": 0, "recordedtime": 0, "run": OWNER.run, "batch": 0}
    taken = []
    for number in range(COMMITS):
        with FileWriter(folder, MEASURED["events"]) as writer:
            writer.add(pa.RecordBatch.from_pylist([{**row, "stream": "s", "sequence": number}], schema))
            files = writer.close()
        began = time.perf_counter()
        log.append(files, MicroBatch("main", OWNER.run, number), OWNER)
        taken.append((time.perf_counter() - began) * 1000)
    return statistics.median(taken)


def stored(bench: Bench, store: ObjectStore) -> str:
    """Return the settings of the store."""
    keys = store.write_key_file(bench.folder / "store-keys")
    return f'[store]\nendpoint = "{store.endpoint}"\nkey_file = "{keys}"\n'


def flow(bench: Bench, tenant: str, events: int, place: str, more: str, *options: object) -> tuple[float, float]:
    """Return `rate` of a flow whose tables and checkpoint are at a place."""
    own = f'[flow]\ntables = "{place}/tables"\ncheckpoint = "{place}/checkpoint"\nraw_days = 0\n'
    cloud = bench.cloud(tenant, SHARDS, f"{own}max_events_per_batch = {events // BATCHES}\n{more}")
    command = (BIN / "fogline", "flow", "run", "--once", "--json", "--config", cloud, *options)
    return rate(bench, f"flow-{tenant}", events, *command)


def on_cluster(bench: Bench, store: ObjectStore, tenant: str, workers: int) -> float:
    """Return events a second on so many executors."""
    archive = environment(bench)
    with SparkCluster(bench.subfolder(f"cluster-{workers}"), workers=workers) as cluster, ExitStack() as quotas:
        for each in cluster.workers:
            quotas.enter_context(cpu_quota(each.pid, QUOTA))
        more = f'archive = "{archive}"\n{stored(bench, store)}'
        place = f"s3://{BUCKET}/cluster-{bench.number}-{workers}"
        return flow(bench, tenant, bench.events * 2, place, more, "--master", cluster.url)[0]


def environment(bench: Bench) -> Path:
    """Return the archive of the executors' environment."""
    archive = bench.folder / "environment.zip"
    if not archive.exists():
        log = bench.folder / "archive.log"
        cloud = bench.cloud("archive", 1)
        if run_to_end([BIN / "fogline", "flow", "archive", archive, "--config", cloud], log)[0]:
            raise Failed(f"fogline flow archive: {log.read_text('utf-8').strip()}")
    return archive
