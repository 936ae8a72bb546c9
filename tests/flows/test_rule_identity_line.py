"""A device's program sends events again through two gateways, from the device to the table.

It has no memory of the protocol: each try has a packet id of its own, and writes the event in another spelling. The gateways
are killed meanwhile, so that the program does not know what they have stored.
"""

import asyncio
import contextlib
import json
from collections import Counter, deque
from functools import partial
from pathlib import Path
from random import Random

import pytest

from flows.tenant_flow import Flow
from fogline.events.identity import Duplicates
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.ledger.balance import judge
from fogline_cloud.ledger.sources import gather
from fogline_cloud.shard.topic_admin import create_topics
from fogline_edge.adapters.mqtt.protocol.packets import Ack, Connect, Publish
from fogline_edge.operate.status import read_status
from fogline_lab.device.mqtt_wire import MqttWire
from fogline_lab.gateway.gateway_process import GatewayProcess
from fogline_lab.line.line import Line
from fogline_lab.waiting import until

NAMES = ("gw-1", "gw-2")
IN_FLIGHT = 100
AGAIN = 0.3
RULE = '[[rules.identity]]\nname = "press"\nfields = ["/serial", "/n"]\nshared = true\nduplicates = "{}"\n'


def event(n: int, attempt: int) -> bytes:
    """An event as the program writes it, which spells it in another way each time."""
    members = [("serial", "p-7"), ("n", float(n) if attempt % 2 else n), ("value", n / 4)]
    return json.dumps(dict(reversed(members) if attempt % 2 else members), indent=attempt or None).encode()


def plan(events: int, random: Random) -> dict[str, deque[int]]:
    """Return what the program sends to each gateway: each event once, and some again, to any of the two, soon or late."""
    sent = [(float(n), n) for n in range(events)]
    sent += [(n + random.choice((1, 50, 5000)) * random.random(), n) for n in range(events) if random.random() < AGAIN]
    plans: dict[str, deque[int]] = {name: deque() for name in NAMES}
    for _, n in sorted(sent):
        plans[random.choice(NAMES)].append(n)
    return plans


class Program:
    """Sends its events to one gateway until each is acknowledged. `acknowledged`: by number, how often."""

    def __init__(self, gateway: GatewayProcess, plan: deque[int]) -> None:
        self.acknowledged: Counter[int] = Counter()
        self._gateway = gateway
        self._plan = plan
        self._kills = deque([len(plan) // 3, len(plan) // 2])
        self._tries: Counter[int] = Counter()
        self._packet_ids = 0

    async def run(self) -> None:
        port = await self._gateway.start()
        while True:
            wire = MqttWire(*await asyncio.open_connection("127.0.0.1", port), 4)
            in_flight: dict[int, int] = {}
            with contextlib.suppress(ConnectionError):
                await self._talk(wire, in_flight)
            wire.cut()
            if not in_flight and not self._plan:
                return
            self._plan.extendleft(reversed(in_flight.values()))  # it does not know what was stored
            port = await self._gateway.start()

    async def _talk(self, wire: MqttWire, in_flight: dict[int, int]) -> None:
        """Send until all is acknowledged, or until the gateway is killed."""
        await wire.send(Connect(version=4, client_id="press-7"))
        await wire.receive()
        while self._plan or in_flight:
            await wire.send(*(self._next(in_flight) for _ in range(min(len(self._plan), IN_FLIGHT - len(in_flight)))))
            packet = await wire.receive()
            if packet is None:
                return
            assert isinstance(packet, Ack), packet
            self.acknowledged[in_flight.pop(packet.packet_id)] += 1
            if self._kills and self.acknowledged.total() >= self._kills[0]:
                self._kills.popleft()
                await self._gateway.kill()

    def _next(self, in_flight: dict[int, int]) -> Publish:
        n = self._plan.popleft()
        self._packet_ids = self._packet_ids % 65_535 + 1
        in_flight[self._packet_ids] = n
        self._tries[n] += 1
        return Publish(topic="telemetry", payload=event(n, self._tries[n] - 1), qos=1, packet_id=self._packet_ids)


async def delivered(flow: Flow, folder: Path, events: int, duplicates: Duplicates) -> Counter[int]:
    """Let the program send its events, and wait until the bridge has them. Returns how often each was acknowledged."""
    create_topics(KafkaClients(flow.settings.kafka), flow.settings, 1)
    line = Line(flow.settings.tenant, folder, flow.settings)
    plans = plan(events, Random(events))
    async with line.bridge():
        gateways = {}
        for name in NAMES:
            (folder / name).mkdir()
            more = RULE.format(duplicates.value)
            gateways[name] = GatewayProcess(folder / name, line.port, more, name=name, tenant=line.tenant)
        programs = [Program(gateways[name], plans[name]) for name in NAMES]
        try:
            await asyncio.gather(*(each.run() for each in programs))
            for gateway in gateways.values():
                await until(lambda data=gateway.data: not read_status(data)["backlog"], "the outbox does not drain")
        finally:
            for gateway in gateways.values():
                await gateway.stop()
    return sum((each.acknowledged for each in programs), Counter())


def numbers(flow: Flow, table: str, **wanted: object) -> Counter[int]:
    """Return how often each event of the program is in a table, in rows with these values."""
    rows = [row for row in flow.rows(table) if all(row[name] == value for name, value in wanted.items())]
    return Counter(int(row["value"] * 4) for row in rows if row["metric"] == "value")


def balances(flow: Flow) -> bool:
    gathered = gather(KafkaClients(flow.settings.kafka), flow.settings)
    return not [finding for each in gathered.streams for finding in judge(each)]


@pytest.mark.slow
async def test_events_that_a_program_sends_again_through_two_gateways_are_one_row_each(flow: Flow, folder: Path) -> None:
    events = 20_000
    acknowledged = await delivered(flow, folder, events, Duplicates.DROP)
    await asyncio.to_thread(flow.run)

    assert acknowledged.keys() == set(range(events))
    assert acknowledged.total() > events * (1 + AGAIN / 2)
    assert numbers(flow, "readings") == Counter(range(events)), "one row for each event"
    outcomes = Counter(row["outcome"] for row in flow.rows("events") if row["device"] == "press-7")
    assert outcomes["ok"] == events
    assert outcomes["duplicate"] > 0, "the other gateway's copies are known as such"
    assert await asyncio.to_thread(partial(balances, flow))


@pytest.mark.slow
async def test_events_that_a_program_sends_again_are_all_there_and_marked(flow: Flow, folder: Path) -> None:
    events = 4000
    acknowledged = await delivered(flow, folder, events, Duplicates.MARK)
    await asyncio.to_thread(flow.run)

    everything, copies = numbers(flow, "readings"), numbers(flow, "readings", again=True)
    assert everything - copies == Counter(range(events)), "one row of each event is no copy"
    assert everything >= acknowledged, "each try that was acknowledged is there"
    marked = [row for row in flow.rows("events") if row["again"] and row["gateway"]]
    assert len(marked) == copies.total()
    assert await asyncio.to_thread(partial(balances, flow))
