"""Looks at every stage from outside, beside the parts: outboxes, Kafka, the table."""

import asyncio
import contextlib
import threading
import time
from pathlib import Path

import msgspec
from confluent_kafka import Consumer, TopicPartition
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from demo.parts import News
from demo.payload import METRICS
from demo.picture import AirNews, DeviceNews, FlowNews, GatewayNews, Picture, ReadingNews
from demo.place import SHARDS, TENANT, Place
from fogline.errors import Misconfigured
from fogline.event import parse_rfc3339
from fogline_cloud import topics
from fogline_cloud.kafka import KafkaClients
from fogline_edge.status import read_status

OUTBOX_S = 0.5
TABLE_S = 1.0
_OURS = b"application/vnd.fogline-"
_BLE = b"application/vnd.fogline-ble-"


async def watch_outboxes(place: Place, picture: Picture) -> None:
    """Read every outbox again and again."""
    while True:
        for name, news in picture.gateways.items():
            await asyncio.to_thread(look_at_outbox, place.outbox(name), news)
        await asyncio.sleep(OUTBOX_S)


def look_at_outbox(folder: Path, news: GatewayNews) -> None:
    """One outbox, if it is there."""
    try:
        status = read_status(folder)
    except Misconfigured:
        return
    news.stored.set(status["stored"], time.monotonic())
    news.settled = status["settled_events"]
    news.backlog = status["backlog"]
    news.duplicate = status["duplicate"]


def unknown_to_gateways(place: Place, picture: Picture) -> int:
    """How many events are in Kafka that no gateway has noted as accepted."""
    highest = picture.kafka.highest
    return sum(max(0, highest.get(stream, 0) - settled) for stream, settled in settled_streams(place).items())


def settled_streams(place: Place) -> dict[str, int]:
    """By stream of a gateway, the highest sequence that the bridge has accepted, and Kafka therefore has."""
    found: dict[str, int] = {}
    for name in place.gateways:
        with contextlib.suppress(Misconfigured):
            found |= {each["stream"]: each["settled"] for each in read_status(place.outbox(name))["streams"]}
    return found


async def watch_table(place: Place, picture: Picture) -> None:
    """Count the rows of `events` by its log alone."""
    while True:
        await asyncio.to_thread(look_at_table, place, picture)
        await asyncio.sleep(TABLE_S)


def look_at_table(place: Place, picture: Picture) -> None:
    """The number of rows and the newest batch now, if there is a table."""
    path = place.folder / "tables" / "events"
    if not (path / "_delta_log").is_dir():
        return
    try:
        files = DeltaTable(str(path)).get_add_actions(flatten=True)
    except (DeltaError, OSError):
        return  # it is being made
    if files.num_rows:
        picture.flow.rows.set(sum(count.as_py() or 0 for count in files.column("num_records")), time.monotonic())
        picture.flow.newest = max(batch.as_py() for batch in files.column("max.batch"))


def hear_devices(news: DeviceNews, line: News) -> None:
    """A line of the devices' process."""
    news.acknowledged.set(line["acknowledged"], time.monotonic())
    news.waiting = line["waiting"]
    news.connected = line["connected"]
    news.connections = line["connections"]
    news.refused = line["refused"]
    news.unknown = line["unknown"]
    if line["p50_ms"] is not None:
        news.p50_ms, news.p99_ms = line["p50_ms"], line["p99_ms"]
    news.sent = line.get("sent")


def hear_census(picture: Picture, part: str, line: News) -> None:
    """A line of a gateway or a bridge: what it holds."""
    if "census" in line:
        picture.census[part] = line["census"]


def hear_air(news: AirNews, line: News) -> None:
    """A line of the air."""
    news.said, news.linked, news.cycles = line["said"], line["linked"], line["cycles"]


def hear_flow(news: FlowNews, line: News) -> None:
    """A line of the flow: one batch."""
    if "batch" in line:
        news.batch, news.batch_events, news.batch_s = line["batch"], line["events"], line["seconds"]
        news.batches += 1


class _Reading(msgspec.Struct):
    metric: str
    value: float | None = None
    text: str | None = None
    unit: str | None = None


class _Canonical(msgspec.Struct):
    """A record of the canonical topic, as far as it is shown."""

    device: str
    recordedtime: str
    readings: list[_Reading]


class KafkaTail:
    """Reads raw and canonical topics to their end and on, in a thread of its own."""

    def __init__(self, place: Place, picture: Picture) -> None:
        self._clients = KafkaClients({"bootstrap.servers": f"127.0.0.1:{place.ports.kafka}"})
        self._picture = picture
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kafka-tail", daemon=True)

    def start(self) -> None:
        """Begin at the beginning."""
        self._thread.start()

    async def stop(self) -> None:
        """End."""
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
            self._picture.kafka.events.set(sum(self._picture.kafka.lanes.values()), time.monotonic())
        consumer.close()

    def _take_record(self, headers: dict[str, bytes]) -> None:
        news = self._picture.kafka
        news.records += 1
        if "ce_stream" not in headers:  # a notice of the bridge
            return
        stream = headers["ce_stream"].decode()
        news.highest[stream] = max(news.highest.get(stream, 0), int(headers["ce_sequence"]))
        if headers["content-type"].startswith(_BLE):
            news.ble += 1
            news.heard.add(headers["device_id"].decode())
        elif headers["content-type"].startswith(_OURS):
            return
        lane = headers["ce_lane"].decode()
        news.lanes[lane] = news.lanes.get(lane, 0) + 1
        news.latency_ms.append(time.time() * 1000 - int(headers["creation-time"]))

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
                self._picture.readings[sort] = ReadingNews(event.device, each.metric, shown.strip(), late_s)
