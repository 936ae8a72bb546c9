"""Outbox, uplink, bridge and a real broker: everything that was acknowledged lands once."""

import asyncio
import json
import sqlite3
from collections import defaultdict
from contextlib import closing

import pytest

from fogline.amqp.backoff import Backoff
from fogline.events.event import Lane
from fogline.events.gap import GAP_CONTENT_TYPE, decode_gap
from fogline_cloud.bridge.gateways.connected_gateways import ConnectedGateways
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.kafka.records import position_of
from fogline_cloud.ledger.balance import judge
from fogline_cloud.ledger.sources import gather
from fogline_edge.outbox.outbox import Outbox
from fogline_lab.line.line import Line
from fogline_lab.waiting import until_not


async def test_acknowledged_events_land_once_and_the_ledger_balances(line):
    async with line.bridge(), line.gateway() as outbox:
        await line.put(outbox, *range(1000))
        await line.put(outbox, *range(1000, 1100), lane=Lane.ALARM)
        await line.drained(outbox)
    assert sorted(line.landed(Lane.TELEMETRY, Lane.ALARM)) == list(range(1100))
    assert line.landed(Lane.TELEMETRY) == list(range(1000))
    gathered = await asyncio.to_thread(gather, KafkaClients(line.cloud.kafka), line.cloud)
    assert [finding for each in gathered.streams for finding in judge(each)] == []


async def test_a_statement_goes_out_when_nothing_else_does(line):
    """The last word of a gateway on what it acknowledged must not wait for the next event."""
    async with line.bridge(), line.gateway() as outbox:
        await line.put(outbox, *range(10))

        async def unstated() -> bool:
            (stream,) = await outbox.streams.pending()
            return stream.head == 10 or stream.settled < stream.head

        await until_not(unstated, "the statement was not written, or did not go out")


async def test_events_stored_while_the_bridge_is_away_land_after_it_returns(line):
    async with line.bridge():
        pass
    async with line.gateway() as outbox:
        await line.put(outbox, *range(500))
        async with line.bridge():
            await line.drained(outbox)
    assert line.landed() == list(range(500))


async def test_a_bridge_that_comes_and_goes_doubles_nothing(line):
    async with line.bridge():
        pass
    async with line.gateway() as outbox:
        for begin in range(0, 2000, 400):
            async with line.bridge():
                await line.put(outbox, *range(begin, begin + 400))
        async with line.bridge():
            await line.drained(outbox)
    assert line.landed() == list(range(2000))


@pytest.mark.fault("C3")
async def test_settlements_that_were_lost_are_resent_and_refused(line, monkeypatch):
    """The gateway forgets every settlement, as if it was killed right after the bridge had committed."""
    async with line.bridge() as bridge:
        outbox = Outbox.open(line.settings())
        monkeypatch.setattr(outbox.streams, "settle", lambda *_: None)
        async with line.uplink(outbox):
            await line.put(outbox, *range(300))

            async def missing() -> bool:
                return sum(shard.counters.landed for shard in bridge.shards) < 300

            await until_not(missing, "nothing landed")
        await outbox.close()
        async with line.gateway() as outbox:
            await line.drained(outbox)
    assert line.landed() == list(range(300))


@pytest.mark.fault("D7")
async def test_a_lone_refused_event_in_a_batch_of_a_hundred_stays_alone(line):
    async with line.bridge():
        pass
    outbox = Outbox.open(line.settings())
    await line.put(outbox, *range(1, 101))
    await outbox.close()
    with sqlite3.connect(line.folder / "gw-1" / "outbox.db") as database:
        database.execute("UPDATE event SET body = x'7b7d' WHERE sequence = 42")
    async with line.bridge(), line.gateway() as outbox:
        await line.drained(outbox)
        (stream,) = await outbox.streams.pending()
        assert stream.counts.quarantined == 1
    assert line.landed() == [n for n in range(1, 101) if n != 42]
    places = [position_of(each.headers, each.value) for each in line.records()]
    assert [place.last for place in places][:100] == list(range(1, 101))
    gaps = [each for each in line.records() if dict(each.headers)["content-type"] == GAP_CONTENT_TYPE.encode()]
    (gap,) = [decode_gap(each.value) for each in gaps]
    assert (gap.first, gap.last, gap.reason) == (42, 42, "quarantined")


@pytest.mark.fault("C13")
async def test_a_restored_copy_of_an_outbox_loses_nothing(line):
    """An older copy of the file comes back: its numbers are taken, so what it has goes out under a new stream."""
    async with line.bridge():
        outbox = Outbox.open(line.settings())
        await line.put(outbox, *range(10))
        await outbox.close()
        source = line.folder / "gw-1" / "outbox.db"
        backup = source.read_bytes()
        async with line.gateway() as outbox:
            await line.put(outbox, *range(10, 20))
            await line.drained(outbox)
        for leftover in source.parent.glob("outbox.db*"):
            leftover.unlink()
        source.write_bytes(backup)
        async with line.gateway() as outbox:
            await line.put(outbox, *range(20, 30))
            await line.drained(outbox)
    assert set(line.landed()) == set(range(30))


@pytest.mark.fault("C13")
async def test_events_of_two_outbox_copies_with_equal_sequence_are_two_events(line):
    """The original goes on after the backup; the copy, restored, stores other events at the very same places."""
    outbox = Outbox.open(line.settings())
    await line.put(outbox, *range(10))
    await outbox.close()
    source = line.folder / "gw-1" / "outbox.db"
    backup = source.read_bytes()
    async with line.bridge():
        outbox = Outbox.open(line.settings())
        await line.put(outbox, *range(10, 20))
        async with line.uplink(outbox):
            await line.drained(outbox)
        await outbox.close()
        for leftover in source.parent.glob("outbox.db*"):
            leftover.unlink()
        source.write_bytes(backup)
        outbox = Outbox.open(line.settings())
        await line.put(outbox, *range(20, 30))
        async with line.uplink(outbox):
            await line.drained(outbox)
        await outbox.close()
    ids = defaultdict(list)
    for record in line.records():
        headers = dict(record.headers)
        if headers["device_id"] == b"lamp-1":
            ids[json.loads(record.value)["n"]].append((headers["ce_source"], headers["ce_id"].decode()))
    assert {n: len(found) for n, found in ids.items()} == {n: 2 if n < 10 else 1 for n in range(30)}
    assert all(len(set(found)) == 1 for found in ids.values()), "what was sent twice is not one event"
    assert len({one for found in ids.values() for one in found}) == 30, "two events are one"
    places = {n: found[0][1].rpartition(".")[0] for n, found in ids.items()}
    assert [places[n] for n in range(10, 20)] == [places[n] for n in range(20, 30)], "it was no copy of the same places"


@pytest.mark.fault("C13")
async def test_two_live_copies_lose_nothing_where_the_bridge_cannot_close_the_first_connection(line, monkeypatch):
    """As behind a router: the batches of both come one after the other, for the same stream, at the same sequences."""
    monkeypatch.setattr(ConnectedGateways, "add", lambda self, peer: self._by_name.update({peer.principal.name: peer}))
    copy = Line(line.tenant, line.folder / "copy", line.cloud)
    async with line.bridge(), line.gateway() as outbox:
        copy.port = line.port
        await line.put(outbox, *range(10))
        await line.drained(outbox)
        (copy.folder / "gw-1").mkdir(parents=True)
        with (
            closing(sqlite3.connect(line.folder / "gw-1" / "outbox.db")) as source,
            closing(sqlite3.connect(copy.folder / "gw-1" / "outbox.db")) as target,
        ):
            source.backup(target)
        async with copy.gateway() as other:
            for n in range(10, 100, 10):
                await line.put(outbox, *range(n, n + 5))
                await copy.put(other, *range(n + 5, n + 10))
                await line.drained(outbox)
            await copy.drained(other)
    assert sorted(set(line.landed())) == list(range(100))


@pytest.mark.fault("C13")
async def test_two_connections_of_one_name_the_second_takes_over_and_the_bridge_warns(line, caplog):
    # Each takes over again after its pause, so the pauses must be longer than a slow machine needs to connect.
    async with line.bridge() as bridge, line.gateway(backoff=Backoff(1.0, 5.0)) as outbox:
        await line.put(outbox, 1)
        await line.drained(outbox)
        assert bridge.gateways.names == ["gw-1"]
        copy = Line(line.tenant, line.folder / "copy", line.cloud, line.port)
        async with copy.gateway(backoff=Backoff(1.0, 5.0)) as other:
            await copy.put(other, 2)
            await copy.drained(other)
            assert bridge.gateways.names == ["gw-1"]
    assert set(line.landed()) == {1, 2}
    assert "gateway gw-1 connected a second time" in caplog.text
