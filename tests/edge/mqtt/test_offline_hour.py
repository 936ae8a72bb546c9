"""An hour without a bridge: rules act, windows close, programs on the site see it, and nothing grows beyond its bounds."""

import contextlib
import json
import sqlite3
import tracemalloc
from collections import Counter

from fogline.commands.signature import TrustedKeys
from fogline_edge.adapters.mqtt.protocol.packets import Ack, Publish
from fogline_edge.adapters.mqtt.protocol.primitives import PacketType
from fogline_edge.downlink.downlink import Downlink
from fogline_edge.operate.status import read_status
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.rule_settings import ActionTable, ReactTable, ReduceTable, RuleSettings
from fogline_edge.settings import EdgeSettings, OutboxSettings
from fogline_lab.clock import FakeClock, pass_time
from fogline_lab.credentials.mosquitto_passwords import password_file

MINUTES, READINGS = 60, 5
MAX_BYTES = 2_000_000
RULES = RuleSettings(
    reduce=[ReduceTable(name="means", device="sensor", fields=["/t"], window_s=60, aggregates=["mean", "max"])],
    react=[
        ReactTable(
            name="hot",
            device="sensor",
            when="event.value.t > 26.0",
            then=[
                ActionTable(command="switch", device="fan", json={"on": True}, reply=False),
                ActionTable(alarm="it is hot"),
                ActionTable(topic="rule/hot"),
            ],
        )
    ],
)


async def test_rules_act_and_subscribers_see_it_during_an_hour_without_a_bridge(tmp_path, listening, dial, monkeypatch):
    clock = FakeClock()
    monkeypatch.setattr("fogline_edge.adapters.mqtt.server.listener.beacon", clock.beacon)
    file = tmp_path / "data" / "outbox.db"
    settings = EdgeSettings(
        tenant="acme",
        gateway="gw-1",
        data=str(file.parent),
        outbox=OutboxSettings(group_commit_ms=0, max_bytes=MAX_BYTES),
        rules=RULES,
    )
    users = {"users": password_file(tmp_path, sensor="s", fan="f", hall="h"), "subscribers": {"hall": ["#"]}}
    outbox = Outbox.open(settings, clock=clock)
    downlink = Downlink(outbox, TrustedKeys())
    await downlink.start()
    try:
        async with (
            listening(outbox.port, downlink, **users) as listener,
            dial(listener, "fan", username="fan", password=b"f") as (fan, _),
            dial(listener, "sensor", username="sensor", password=b"s") as (sensor, _),
            dial(listener, "hall", username="hall", password=b"h") as (hall, _),
        ):
            await fan.subscribe("command///req/#")
            await hall.subscribe("rule/#", "event/acme/sensor/#", "telemetry/acme/sensor/#")
            got, grown = Counter[str](), 0
            for minute in range(MINUTES):
                hot = minute % 2 == 1
                for number in range(READINGS):
                    await sensor.publish(
                        "telemetry", json.dumps({"t": 27 if hot else 20}).encode(), minute * READINGS + number + 1
                    )
                    assert isinstance(await sensor.receive(), Ack)
                wanted = {"command": 1, "alarm": 1, "message": 1} if hot else {}
                got += await read(fan, hall, wanted | ({"mean": 1} if minute else {}))
                if minute == MINUTES // 6:
                    tracemalloc.start()
                clock.go_on(60)
                pass_time(60)
            grown, _ = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            got += await read(fan, hall, {"mean": 1})
    finally:
        downlink.close()
        await outbox.close()
    assert got == {"command": MINUTES / 2, "alarm": MINUTES / 2, "message": MINUTES / 2, "mean": MINUTES}
    assert grown < 2_000_000, "what is held for 50 minutes"
    assert file.stat().st_size <= MAX_BYTES
    assert read_status(file.parent)["rules"] == {
        "hot": {"fired": MINUTES // 2},
        "means": {"merged": MINUTES * READINGS, "aggregate": MINUTES},
    }
    with contextlib.closing(sqlite3.connect(file)) as reading:
        assert reading.execute("SELECT state, count(*) FROM command GROUP BY state").fetchall() == [("SUCCEEDED", MINUTES // 2)]
        assert reading.execute("SELECT count(*) FROM kept WHERE key GLOB 'rule*'").fetchall() == [(1,)], "the state of one rule"


async def read(fan, hall, wanted: dict[str, int]) -> Counter[str]:
    """Read what is wanted of one minute: the command from the fan's connection, the rest from the subscriber's."""
    found = Counter[str]()
    while sum(found.values()) < sum(wanted.values()):
        wire = fan if wanted.get("command", 0) > found["command"] else hall
        packet = await wire.receive()
        assert isinstance(packet, Publish), packet
        await wire.send(Ack(kind=PacketType.PUBACK, packet_id=packet.packet_id))
        found[kind_of(packet)] += 1
    assert found == wanted
    return found


def kind_of(packet: Publish) -> str:
    if packet.topic.startswith("command/"):
        return "command"
    if packet.topic.startswith("rule/"):
        return "message"
    return "alarm" if packet.topic.startswith("event/") else "mean"
