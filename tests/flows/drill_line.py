"""Gateways under load, a bridge as a process, and a flow over its topics, for drills with a Kafka that is lost."""

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import SparkSession

from flows.tenant_flow import Flow
from fogline.amqp.backoff import Backoff
from fogline.events.gap import GAP_CONTENT_TYPE, GapReason, decode_gap
from fogline_cloud.cli.main import main
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.kafka.committed_records import CommittedRecord, read_committed
from fogline_cloud.kafka.records import position_of
from fogline_cloud.ledger.balance import judge
from fogline_cloud.ledger.sources import gather
from fogline_cloud.settings import FlowSettings
from fogline_cloud.shard.topic_admin import create_topics
from fogline_lab.kafka_broker import KafkaBroker
from fogline_lab.line.process_line import Fact, ProcessLine
from fogline_lab.supervisor import kill_child, start_child
from fogline_lab.waiting import until

LIMIT_S = 180.0
"""Limit of each wait, on a machine where two brokers, a mirror and Spark share the cores."""
Place = tuple[str, str, int]
"""Gateway, stream and sequence."""


class DrillLine:
    """One bridge, a gateway in each of two shards, and the flow. `flow` has the Kafka of `site`."""

    def __init__(self, spark: SparkSession, tenant: str, folder: Path, bootstrap: str) -> None:
        self.site = ProcessLine(tenant, folder, bootstrap, shards=2, pace_s=0.5)
        self.folder = folder
        self._spark = spark

    @property
    def flow(self) -> Flow:
        """The flow with table `raw`."""
        return self._flow(raw_days=90)

    def _flow(self, raw_days: int) -> Flow:
        settings = FlowSettings(
            tables=str(self.folder / "tables"),
            checkpoint=str(self.folder / "checkpoint"),
            raw_days=raw_days,
            parse_limit_ms=10_000,
        )
        return Flow(self._spark, msgspec.structs.replace(self.site.cloud, flow=settings))

    def parse_only(self) -> None:
        """Let the flow read what is there, without table `raw`."""
        self._flow(raw_days=0).run()

    async def start(self) -> None:
        """Start bridge and gateways."""
        await start_child(self.site.bridge("bridge-1"))
        await self.site.shared("bridge-1")
        for shard in range(self.site.shards):
            self.site.open_gateway(self.site.gateway_of(shard), "bridge-1", backoff=Backoff(base_s=0.05, cap_s=1.0))
        await self.lands("nothing lands")

    async def lands(self, what: str) -> None:
        """Wait until something of each gateway has landed that is stored from now on."""
        await asyncio.gather(*(self.site.lands(name, what) for name in self.site.outboxes))

    async def go_on_with(self, bootstrap: str, *commands: list[str]) -> None:
        """Kill the bridge, make the topics in another Kafka, run `fogline` there with these arguments, and start the bridge."""
        await kill_child(self.site.bridges["bridge-1"])
        await asyncio.to_thread(self.site.use_kafka, bootstrap)
        bridge = self.site.bridge("bridge-1")
        for command in commands:
            assert await asyncio.to_thread(main, [*command, "--config", str(self.config())]) == 0, command
        await start_child(bridge)
        await until(self._is_empty, "the gateways do not go on in the other Kafka", LIMIT_S)

    async def _is_empty(self) -> bool:
        """Return True if each gateway has handed on all that it has. Its load goes on."""
        streams = [each for outbox in self.site.outboxes.values() for each in await outbox.streams.pending()]
        return all(each.head == each.settled for each in streams)

    def make_topics_in(self, bootstrap: str) -> None:
        """Make the tenant's topics in another Kafka, which its bridges do not use yet."""
        cloud = msgspec.structs.replace(self.site.cloud, kafka={"bootstrap.servers": bootstrap})
        create_topics(KafkaClients(cloud.kafka), cloud, 1)

    async def has_every_gateway(self, bootstrap: str) -> bool:
        """Return True if another Kafka has an event of each gateway."""
        clients = KafkaClients({"bootstrap.servers": bootstrap})
        found = await asyncio.to_thread(self.records, clients)
        return {place[0] for each in found if (place := place_of(each))} >= self.site.outboxes.keys()

    async def lacks_nothing(self, kafka: KafkaBroker, former: Path) -> bool:
        """Return True if `fogline topics compare` says that this Kafka has all that the former one has."""
        here = self.config("compare", kafka.bootstrap)
        return await asyncio.to_thread(main, ["topics", "compare", str(former), "--config", str(here)]) == 0

    def config(self, name: str = "cloud", bootstrap: str = "") -> Path:
        """Return a settings file of the flow and of operators, by default with the Kafka that bridges use now."""
        path = self.folder / f"{name}.toml"
        path.write_text(
            f'tenant = "{self.site.tenant}"\nshards = {self.site.shards}\n'
            f'[kafka]\n"bootstrap.servers" = "{bootstrap or self.site.bootstrap}"\n'
            f'[flow]\ntables = "{self.folder / "tables"}"\ncheckpoint = "{self.folder / "checkpoint"}"\n'
        )
        return path

    def records(self, clients: KafkaClients | None = None) -> list[CommittedRecord]:
        """Return the records of the raw topics, by default of the Kafka that bridges use now."""
        places = {(name, n): None for name in topics.raw_topics(self.site.tenant) for n in range(self.site.shards)}
        return list(read_committed(clients or self.site.clients, places))

    def events(self) -> dict[Place, Fact | None]:
        """Return each event in Kafka, and the fact that a device counted, if it is one."""
        places = [(place_of(record), record.value) for record in self.records()]
        return {place: fact_of(place, value) for place, value in places if place is not None}


def place_of(record: CommittedRecord) -> Place | None:
    """Return gateway, stream and sequence of a record."""
    position = position_of(record.headers, record.value)
    return (position.gateway, position.stream, position.last) if position else None


def stored_place(row: dict[str, Any]) -> Place | None:
    """Return gateway, stream and sequence of a row of table `raw`."""
    headers = [(each["key"], each["value"]) for each in row["headers"]]
    return place_of(CommittedRecord("", 0, 0, b"", row["value"], headers))


def fact_of(place: Place, value: bytes) -> Fact | None:
    """Return what a device counted."""
    return (place[0], int(json.loads(value)["n"])) if value.startswith(b'{"n"') else None


def table_facts(flow: Flow, gateways: set[str]) -> Counter[Fact]:
    """Return how often the tables have each fact: the one reading of each event counts."""
    rows = [row for row in flow.rows("readings") if row["metric"] == "n" and row["gateway"] in gateways]
    return Counter((row["gateway"], int(row["value"])) for row in rows)


def named_as_lost(records: list[CommittedRecord]) -> set[Place]:
    """Return the places that gap records of gateways name as lost."""
    found: set[Place] = set()
    for record in records:
        if dict(record.headers).get("content-type") != GAP_CONTENT_TYPE.encode():
            continue
        gap, place = decode_gap(record.value), place_of(record)
        if gap.reason is GapReason.LOST and gap.lost is not None and place is not None:
            assert gap.lost.stream is not None
            assert gap.lost.first is not None
            assert gap.lost.last is not None
            found |= {(place[0], gap.lost.stream, sequence) for sequence in range(gap.lost.first, gap.lost.last + 1)}
    return found


def check_ledger(flow: Flow) -> list[str]:
    """Check that the ledger balances. Returns the losses that it explains as text."""
    streams = gather(KafkaClients(flow.settings.kafka), flow.settings).streams
    found = [finding.text for each in streams for finding in judge(each)]
    assert found == [], found
    return [f"{each.gateway} {loss.detail}" for each in streams for loss in each.losses]
