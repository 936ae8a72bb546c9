"""Micro-batches of a flow whose tables have 1,000, 10,000 and 50,000 commits, maintained as by default.

The commits before are made up: their files do not exist. One commit in 600 replaces the files of the others by one.
"""

import json
import statistics
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from deltalake import DeltaTable
from flow import settings
from processes import BIN, Bench, Failed
from records import events_of

from fogline_cloud.flows.tables.files import TableFolder
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.records import record_of
from fogline_cloud.maintenance.table import MaintainedTable
from fogline_cloud.settings import TablesSettings

COMMITS = (1_000, 10_000, 50_000)
COMPACTED_EVERY = 600
"""Commits between two maintenance runs, with one commit a second."""
JOINED_BYTES = 20 << 20
TURNS = 3
BATCHES = 20
COLD = 6
"""Micro-batches of a started flow that are left out."""
BATCH_EVENTS = 2
LIMIT_S = 300


def measure(bench: Bench) -> dict[str, float]:
    """Three flows, whose tables differ in age, take turns."""
    flows = {}
    for commits in COMMITS:
        tenant = f"commits{bench.number}-{commits}"
        flows[commits] = tenant, settings(bench, tenant, BATCH_EVENTS * 5, 0, name=tenant)
        run_batches(bench, *flows[commits], 0)  # creates the tables
        for name in ("events", "readings"):
            make_commits(name, bench.folder / f"flow-{tenant}" / "tables" / name, commits)
    seconds: dict[int, list[float]] = {commits: [] for commits in COMMITS}
    for turn in range(1, TURNS + 1):
        for commits, flow in flows.items():
            seconds[commits] += run_batches(bench, *flow, turn)[COLD:]
    found = {f"commits.{commits}": statistics.median(each) for commits, each in seconds.items()}
    ratios = {f"commits.ratio_{commits}": found[f"commits.{commits}"] / found["commits.1000"] for commits in COMMITS[1:]}
    return found | ratios


def run_batches(bench: Bench, tenant: str, cloud: Path, number: int) -> list[float]:
    """Land some more events. Returns the seconds of each micro-batch."""
    producer = Producer({"bootstrap.servers": bench.bootstrap})
    count = BATCHES * BATCH_EVENTS
    for event in events_of(tenant, "gw-1", 1, count * (number + 1))[-count:]:
        record = record_of(event)
        producer.produce(topics.telemetry(tenant), record.value, record.key, 0, headers=record.headers)
    if producer.flush(LIMIT_S):
        raise Failed("Kafka did not take the events")
    command = BIN / "fogline", "flow", "run", "--once", "--json", "--config", cloud
    with bench.child(tenant, *command) as child:
        found = [line["seconds"] for line in child.lines(LIMIT_S) if line.get("events")]
        if status := child.wait():
            raise Failed(f"fogline flow run: exit status {status}: it {child.end}")
    return found


def make_commits(name: str, folder: Path, commits: int) -> None:
    """Make commits up to this version, then cut the log as maintenance does."""
    log = folder / "_delta_log"
    template = next(actions for path in sorted(log.glob("*.json"), reverse=True) if "add" in (actions := read_commit(path)))
    table = DeltaTable(folder)
    keep = TablesSettings().keep_commits
    live: list[dict[str, Any]] = []
    for version in range(table.version() + 1, commits + 1):
        if len(live) == COMPACTED_EVERY:
            write_joined(log, version, live)
            live = []
        else:
            live.append({**template["add"], "path": f"{template['add']['path']}-{version}"})
            mark = {**template["txn"], "appId": "made", "version": version}
            write_commit(log, version, {"commitInfo": template["commitInfo"]}, {"txn": mark}, {"add": live[-1]})
        if version in {commits - keep, commits}:  # the log is cut before a checkpoint only
            table.update_incremental()
            table.create_checkpoint()
    MaintainedTable(name, TableFolder(str(folder))).expire_log(keep, datetime.now(UTC), dry_run=False)


def read_commit(path: Path) -> dict[str, Any]:
    """Return one action of each kind of a commit."""
    return {kind: each for line in path.read_text("utf-8").splitlines() for kind, each in json.loads(line).items()}


def write_joined(log: Path, version: int, live: list[dict[str, Any]]) -> None:
    """Write a commit that replaces files by one."""
    now_ms = int(time.time() * 1000)
    kept = ("path", "partitionValues", "size")
    at = {"deletionTimestamp": now_ms, "dataChange": False, "extendedFileMetadata": True}
    gone = [{"remove": {name: each[name] for name in kept} | at} for each in live]
    joined = {"add": {**live[-1], "path": f"{live[-1]['path']}-joined", "size": JOINED_BYTES, "dataChange": False}}
    info = {"commitInfo": {"timestamp": now_ms, "operation": "OPTIMIZE", "operationParameters": {}}}
    write_commit(log, version, info, *gone, joined)


def write_commit(log: Path, version: int, *actions: dict[str, Any]) -> None:
    """Write a commit of the log."""
    (log / f"{version:020}.json").write_text("".join(f"{json.dumps(action)}\n" for action in actions), "utf-8")
