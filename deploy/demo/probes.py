"""Probes of every stage: outboxes, Kafka, the table, and the output of the parts."""

import asyncio
import contextlib
import threading
import time
from pathlib import Path

import msgspec
from confluent_kafka import Consumer, TopicPartition
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from demo.payload import METRICS
from demo.snapshot import AirStats, DeviceStats, FlowStats, GatewayStats, LastReading, Snapshot
from demo.workspace import SHARDS, TENANT, Workspace
from fogline.errors import Misconfigured
from fogline.events.event import parse_rfc3339
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients
from fogline_edge.operate.status import read_status
from fogline_lab.supervisor import Line

OUTBOX_S = 0.5
TABLE_S = 1.0
_OURS = b"application/vnd.fogline-"
_BLE = b"application/vnd.fogline-ble-"


async def watch_outboxes(workspace: Workspace, snapshot: Snapshot) -> None:
    """Read every outbox periodically, until cancelled."""
    while True:
        for name, stats in snapshot.gateways.items():
            await asyncio.to_thread(look_at_outbox, workspace.outbox(name), stats)
        await asyncio.sleep(OUTBOX_S)


def look_at_outbox(folder: Path, stats: GatewayStats) -> None:
    """Read one outbox, if it exists."""
    try:
        status = read_status(folder)
    except Misconfigured:
        return
    stats.stored.set(status["stored"], time.monotonic())
    stats.settled = status["settled_events"]
    stats.backlog = status["backlog"]
    stats.duplicate = status["duplicate"]


def unknown_to_gateways(workspace: Workspace, snapshot: Snapshot) -> int:
    """Return the number of events in Kafka that their gateways have not recorded as settled."""
    highest = snapshot.kafka.highest
    return sum(max(0, highest.get(stream, 0) - settled) for stream, settled in settled_streams(workspace).items())


def settled_streams(workspace: Workspace) -> dict[str, int]:
    """Return the highest settled sequence of each gateway's open stream: Kafka has all events up to it.

    A closed one may have given its last events to another stream, when the gateway was restored.
    """
    found: dict[str, int] = {}
    for name in workspace.gateways:
        with contextlib.suppress(Misconfigured):
            streams = read_status(workspace.outbox(name))["streams"]
            found |= {each["stream"]: each["settled"] for each in streams if each["open"]}
    return found


async def watch_table(workspace: Workspace, snapshot: Snapshot) -> None:
    """Count the rows of `events` periodically, from its log alone, until cancelled."""
    while True:
        await asyncio.to_thread(look_at_table, workspace, snapshot)
        await asyncio.sleep(TABLE_S)


def look_at_table(workspace: Workspace, snapshot: Snapshot) -> None:
    """Read the number of rows and the newest batch, if the table exists."""
    path = workspace.folder / "tables" / "events"
    if not (path / "_delta_log").is_dir():
        return
    try:
        files = DeltaTable(str(path)).get_add_actions(flatten=True)
    except (DeltaError, OSError):
        return  # it is being created
    if files.num_rows:
        snapshot.flow.rows.set(sum(count.as_py() or 0 for count in files.column("num_records")), time.monotonic())
        snapshot.flow.newest = max(batch.as_py() for batch in files.column("max.batch"))


def read_devices(stats: DeviceStats, line: Line) -> None:
    """Read a line of the devices' process."""
    stats.acknowledged.set(line["acknowledged"], time.monotonic())
    stats.waiting = line["waiting"]
    stats.waiting_at.update(enumerate(line["waiting_at"]))
    stats.connected = line["connected"]
    stats.connections = line["connections"]
    stats.refused = line["refused"]
    stats.unknown = line["unknown"]
    if line["p50_ms"] is not None:
        stats.p50_ms, stats.p99_ms = line["p50_ms"], line["p99_ms"]
    stats.sent = line.get("sent")


def read_census(snapshot: Snapshot, part: str, line: Line) -> None:
    """Read the counts that a gateway or a bridge printed."""
    if "census" in line:
        snapshot.census[part] = line["census"]


def read_air(stats: AirStats, line: Line) -> None:
    """Read a line of the Bluetooth devices' process."""
    stats.said, stats.linked, stats.cycles = line["said"], line["linked"], line["cycles"]


def read_flow(stats: FlowStats, line: Line) -> None:
    """Read a line of the flow: one batch."""
    if "batch" in line:
        stats.batch, stats.batch_events, stats.batch_s = line["batch"], line["events"], line["seconds"]
        stats.batches += 1


class _Reading(msgspec.Struct):
    metric: str
    value: float | None = None
    text: str | None = None
    unit: str | None = None


class _Canonical(msgspec.Struct):
    """The fields of a canonical record that the screen shows."""

    device: str
    recordedtime: str
    readings: list[_Reading]


class KafkaTail:
    """Reads raw and canonical topics continuously, in a thread of its own."""

    def __init__(self, workspace: Workspace, snapshot: Snapshot) -> None:
        self._clients = KafkaClients({"bootstrap.servers": f"127.0.0.1:{workspace.ports.kafka}"})
        self._snapshot = snapshot
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kafka-tail", daemon=True)

    def start(self) -> None:
        """Start to read, from the first record."""
        self._thread.start()

    async def stop(self) -> None:
        """Stop the thread."""
        self._stopping.set()
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        consumer: Consumer = self._clients.reader()
        names = [*topics.raw_topics(TENANT), topics.canonical(TENANT)]
        consumer.assign([TopicPartition(name, shard, 0) for name in names for shard in range(SHARDS)])
        canonical = topics.canonical(TENANT)
        while not self._stopping.is_set():
            for message in consumer.consume(1000, 0.1):
                if message.error() is not None:
                    continue
                if message.topic() == canonical:
                    self._take_readings(message.value())
                else:
                    self._take_record(dict(message.headers() or []))
            self._snapshot.kafka.events.set(sum(self._snapshot.kafka.lanes.values()), time.monotonic())
        consumer.close()

    def _take_record(self, headers: dict[str, bytes]) -> None:
        stats = self._snapshot.kafka
        stats.records += 1
        if "ce_stream" not in headers:  # a notice of the bridge
            return
        stream = headers["ce_stream"].decode()
        stats.highest[stream] = max(stats.highest.get(stream, 0), int(headers["ce_sequence"]))
        if headers["content-type"].startswith(_BLE):
            stats.ble += 1
            stats.heard.add(headers["device_id"].decode())
        elif headers["content-type"].startswith(_OURS):
            return
        lane = headers["ce_lane"].decode()
        stats.lanes[lane] = stats.lanes.get(lane, 0) + 1
        stats.latency_ms.append(time.time() * 1000 - int(headers["creation-time"]))

    def _take_readings(self, value: bytes) -> None:
        try:
            event = msgspec.json.decode(value, type=_Canonical)
            late_s = time.time() - parse_rfc3339(event.recordedtime) / 1e9
        except (msgspec.MsgspecError, ValueError):
            return
        sort = event.device.rpartition("-")[0]
        for each in event.readings:
            if each.metric not in METRICS:
                shown = f"{each.value:g} {each.unit or ''}" if each.value is not None else each.text or ""
                self._snapshot.readings[sort] = LastReading(event.device, each.metric, shown.strip(), late_s)
