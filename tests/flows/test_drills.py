"""Drills: what operators do when tables or Kafka are lost, by the commands of docs/operations, with a line under load."""

import asyncio
import shutil
from collections import Counter
from contextlib import asynccontextmanager

import pytest

from flows.drill_line import LIMIT_S, DrillLine, check_ledger, named_as_lost, stored_place, table_facts
from flows.replays import redrive, with_flow
from flows.topic_changes import delete_before
from fogline_cloud.flows import job
from fogline_cloud.flows.replay.selection import Selection
from fogline_lab.kafka_broker import KafkaBroker
from fogline_lab.kafka_mirror import KafkaMirror
from fogline_lab.supervisor import kill_child, stop_children
from fogline_lab.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@asynccontextmanager
async def loaded_line(spark, tenant, folder, kafka):
    """The line under load on a Kafka of its own."""
    line = DrillLine(spark, tenant, folder, kafka.bootstrap)
    try:
        await line.start()
        yield line
    finally:
        await line.site.close()


@asynccontextmanager
async def mirrored(line, former, kafka):
    """MirrorMaker, when the other Kafka has something of each gateway."""
    await asyncio.to_thread(line.make_topics_in, kafka.bootstrap)
    with KafkaMirror(line.folder / "mirror", old=former.bootstrap, new=kafka.bootstrap) as mirror:
        await until(lambda: line.has_every_gateway(kafka.bootstrap), "the mirror copies nothing", LIMIT_S)
        yield mirror


@pytest.mark.fault("K29")
async def test_drill_kafka_is_lost_and_rebuilt_from_raw(spark, tenant, folder):
    """What was in `raw` or parsed is there once; what was in Kafka only is named. The load goes on through it."""
    with KafkaBroker(folder / "kafka") as former, KafkaBroker(folder / "another") as kafka:
        async with loaded_line(spark, tenant, folder, former) as line:
            site = line.site
            await asyncio.to_thread(line.flow.run)
            await line.lands("nothing lands before the parsed tail")
            await asyncio.to_thread(line.parse_only)
            await line.lands("nothing lands before the loss")
            in_raw = {place for each in line.flow.raw_rows() if (place := stored_place(each))}
            await kill_child(site.bridges["bridge-1"])
            before = line.events()
            former.kill()
            await line.go_on_with(kafka.bootstrap, ["topics", "rebuild", "--from-raw"])
            await site.drain()
            await asyncio.to_thread(line.flow.run)

            facts = table_facts(line.flow, set(site.outboxes))
            assert [fact for fact, times in facts.items() if times > 1] == [], "double"
            assert set(facts) <= site.acknowledged
            lost, named = site.acknowledged - set(facts), named_as_lost(line.records())
            assert named, "nothing was lost: the drill shows nothing"
            assert lost == {before[place] for place in named} - {None}, "what is lost is not what is named"
            assert in_raw <= set(line.events()), "a record of raw is not in Kafka"
            explained = check_ledger(line.flow)
            assert sum("its Kafka lost them" in each for each in explained) == len({place[:2] for place in named})
            print(f"{len(facts)} events in the tables, {len(lost)} lost and named")


@pytest.mark.fault("K31")
async def test_drill_fail_over_to_a_mirror_as_planned(spark, tenant, folder):
    """The bridge stops, the mirror gets everything, and the gateways go on in their streams."""
    with KafkaBroker(folder / "kafka") as former, KafkaBroker(folder / "another") as kafka:
        async with loaded_line(spark, tenant, folder, former) as line, mirrored(line, former, kafka) as mirror:
            site = line.site
            await asyncio.to_thread(line.flow.run)
            await line.lands("nothing lands before the fail-over")
            await stop_children(site.bridges["bridge-1"])
            streams = {place[:2] for place in line.events()}
            old = line.config("former")
            await until(lambda: line.lacks_nothing(kafka, old), "the mirror does not catch up", LIMIT_S)
            await asyncio.to_thread(mirror.stop)
            await line.go_on_with(kafka.bootstrap, ["topics", "rebuild"])
            await site.drain()
            await asyncio.to_thread(line.flow.run)

            facts = table_facts(line.flow, set(site.outboxes))
            assert [fact for fact, times in facts.items() if times > 1] == [], "double"
            assert set(facts) == site.acknowledged, "lost"
            assert {place[:2] for place in line.events()} == streams, "a gateway did not trust the marks"
            assert named_as_lost(line.records()) == set()
            assert await site.check() == len(facts)
            check_ledger(line.flow)


@pytest.mark.fault("K31")
async def test_drill_fail_over_to_a_mirror_after_the_site_was_lost_and_came_back(spark, tenant, folder):
    """The mirror is behind, the tables are between: what is missing is named; it comes back with the former site."""
    with KafkaBroker(folder / "kafka") as former, KafkaBroker(folder / "another") as kafka:
        async with loaded_line(spark, tenant, folder, former) as line, mirrored(line, former, kafka) as mirror:
            site = line.site
            await asyncio.to_thread(line.flow.run)
            await asyncio.to_thread(mirror.kill)
            await line.lands("nothing lands behind the mirror")
            await asyncio.to_thread(line.flow.run)
            await line.lands("nothing lands behind the tables")
            await kill_child(site.bridges["bridge-1"])
            before, old = line.events(), line.config("former")
            former.kill()
            await line.go_on_with(kafka.bootstrap, ["topics", "rebuild"])
            await asyncio.to_thread(line.flow.run)
            facts, named = table_facts(line.flow, set(site.outboxes)), named_as_lost(line.records())
            assert named, "nothing was lost: the drill shows nothing"
            assert set(before.values()) - set(facts) - {None} == {before[place] for place in named} - {None}, "unnamed"
            check_ledger(line.flow)

            await asyncio.to_thread(former.start)
            assert not await line.lacks_nothing(kafka, old)
            await line.go_on_with(kafka.bootstrap, ["topics", "rebuild", "--from-kafka", str(old)])
            await site.drain()
            await asyncio.to_thread(line.flow.run)
            facts = table_facts(line.flow, set(site.outboxes))
            assert [fact for fact, times in facts.items() if times > 1] == [], "double"
            assert set(facts) == site.acknowledged, "lost"
            assert await line.lacks_nothing(kafka, old)
            check_ledger(line.flow)


@pytest.mark.fault("K30")
def test_drill_tables_are_lost_and_rebuilt_from_kafka_and_raw(flow, make_event, monkeypatch):
    """Kafka has deleted the oldest records of one partition, and all of another one; `raw` has them."""
    monkeypatch.setattr(job, "CATCH_UP_S", 1)
    flow.settings = with_flow(flow, raw_days=90)
    for round_ in range(3):
        flow.land([make_event(b'{"t": %d}' % number) for number in range(round_ * 10, round_ * 10 + 10)])
        idle = make_event(b'{"t": -1}', gateway="gw-2", stream="00000000000000bb", device="d-2", sequence=round_ + 1)
        flow.land([idle], partition=1)
        flow.run()
    before = {table: everything(flow, table) for table in ("events", "readings")}
    delete_before(flow, 12)
    delete_before(flow, 6, partition=1)  # with the markers of three transactions
    flow.land([make_event(b'{"t": 31}')])
    days = [row["day"] for row in flow.raw_rows()]

    for table in before:
        shutil.rmtree(flow.tables / table)
    shutil.rmtree(flow.checkpoint)
    flow.run()
    redrive(flow, Selection(days=(min(days), max(days))), publish=False)

    after = {table: everything(flow, table) for table in before}
    for table, rows in before.items():
        assert Counter(rows) - Counter(after[table]) == Counter(), f"rows of {table} are missing"
        assert len(after[table]) == len(rows) + 1, f"rows of {table} are there twice"
    check_ledger(flow)


def everything(flow, table):
    """Each row of a table, but for what the flow's own run gives it."""
    own = {"run", "batch", "parse_us", "day"}
    return [str({name: value for name, value in row.items() if name not in own}) for row in flow.rows(table)]
