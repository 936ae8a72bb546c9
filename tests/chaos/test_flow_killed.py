"""C6: `fogline flow run` is killed by SIGKILL right when it has committed what it decided, again and again."""

import asyncio
from pathlib import Path

import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable

from fogline.events.event import Lane
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.kafka.records import record_of
from fogline_cloud.settings import CloudSettings
from fogline_cloud.shard.topic_admin import create_topics
from fogline_lab.events import make_event
from fogline_lab.supervisor import ChildProcess, find_script, kill_child, start_child
from fogline_lab.waiting import until

KILLS = 4
EVENTS = 2000
"""Landed before each life of the flow."""
LIFE_S = 300.0


def land(settings: CloudSettings, first: int) -> None:
    producer = Producer({**settings.kafka, "transactional.id": f"land-{settings.tenant}"})
    producer.init_transactions(60)
    producer.begin_transaction()
    topic = topics.of_lane(Lane.TELEMETRY, settings.tenant)
    for sequence in range(first, first + EVENTS):
        record = record_of(make_event(sequence, tenant=settings.tenant))
        producer.produce(topic, record.value, record.key, partition=0, headers=record.headers)
    producer.commit_transaction(60)


def sequences(tables: Path, table: str) -> list[int]:
    if not DeltaTable.is_deltatable(str(tables / table)):
        return []
    return sorted(DeltaTable(str(tables / table)).to_pyarrow_table(columns=["sequence"])["sequence"].to_pylist())


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.fault("C6")
async def test_a_flow_that_is_killed_after_its_decision_goes_on_as_if_nothing_had_been(kafka, tenant, folder):
    settings = CloudSettings(tenant=tenant, kafka={"bootstrap.servers": kafka.bootstrap}, shards=2)
    create_topics(KafkaClients(settings.kafka), settings, 1)
    config, tables = folder / "cloud.toml", folder / "tables"
    config.write_text(
        f'tenant = "{tenant}"\nshards = 2\n[kafka]\n"bootstrap.servers" = "{kafka.bootstrap}"\n'
        f'[flow]\ntables = "{tables}"\ncheckpoint = "{folder / "checkpoint"}"\n'
    )
    command = [find_script("fogline"), "flow", "run", "--config", config, "--json"]
    behind = 0

    def decided_rows() -> int:
        return len(sequences(tables, "events"))

    for life in range(KILLS):
        await asyncio.to_thread(land, settings, 1 + life * EVENTS)
        flow = ChildProcess("flow", command, folder / f"flow-{life}.log")
        before = decided_rows()
        try:
            await start_child(flow, LIFE_S)
            await until(lambda before=before: decided_rows() > before, f"life {life} decides nothing", LIFE_S)
        finally:
            await kill_child(flow)
        decided, written = (len(sequences(tables, each)) for each in ("events", "readings"))
        behind += written < 2 * decided
    await asyncio.to_thread(land, settings, 1 + KILLS * EVENTS)
    last = ChildProcess("flow", [*command, "--once"], folder / "flow-last.log")
    await start_child(last, LIFE_S)
    assert await asyncio.to_thread(last.wait, LIFE_S) == 0
    print(f"killed {KILLS} times, {behind} times between the decision and what follows from it")
    expected = list(range(1, 1 + (KILLS + 1) * EVENTS))
    assert sequences(tables, "events") == expected
    assert sequences(tables, "readings") == sorted(expected * 2)
    raw = DeltaTable(str(tables / "raw")).to_pyarrow_table(columns=["topic", "partition", "offset"]).to_pylist()
    assert len({tuple(row.values()) for row in raw}) == len(raw) == len(expected)
