"""Rules that reduce, when the process is killed or the power is cut: every window becomes one aggregate of all its events."""

from contextlib import suppress

import msgspec
import pytest

from edge.outbox.stores import close_windows, open_store, stored_events, take
from fogline.errors import Misconfigured
from fogline.events.event import Lane
from fogline.events.identity import Retransmission, UniqueId
from fogline.process.crash_points import CrashPoint
from fogline_edge.rule_settings import ReduceTable, RuleSettings
from fogline_edge.rules.windows import AGGREGATE_CONTENT_TYPE
from fogline_lab.bridge.accepting_bridge import AcceptingBridge
from fogline_lab.clock import FakeClock
from fogline_lab.device.mqtt_lamp import MqttLamp
from fogline_lab.disk import Disk, DiskOperation
from fogline_lab.events import make_arrival
from fogline_lab.gateway.gateway_process import GatewayProcess
from fogline_lab.power_cut import PowerCut

WINDOW = """
[[rules.reduce]]
name = "means"
fields = ["/t"]
window_s = 2
"""
RULES = RuleSettings(reduce=[ReduceTable(name="means", fields=["/t"], window_s=60)])
READINGS = 3
DEVICES = 4
FAR_S = 10_000


def counts_of(events) -> list[int]:
    """The number of events in each aggregate."""
    return [msgspec.json.decode(each.data)["count"] for each in events if each.content_type == AGGREGATE_CONTENT_TYPE]


async def publish(port: int, *, dup: bool = False) -> int:
    """Publish some readings until one is not acknowledged. Returns the number of those that were."""
    lamp = MqttLamp()
    await lamp.connect(port)
    acknowledged = 0
    try:
        for number in range(READINGS):
            await lamp.publish("telemetry", b'{"t": %d}' % number, dup=dup)
            acknowledged += 1
    except ConnectionError:
        pass
    finally:
        await lamp.close()
    return acknowledged


@pytest.mark.parametrize("point", [CrashPoint.BEFORE_COMMIT, CrashPoint.AFTER_COMMIT_BEFORE_ACK])
@pytest.mark.parametrize("when", ["it merges", "it closes"])
@pytest.mark.fault("D14", "D15")
async def test_one_aggregate_across_a_kill_while(folder, when, point):
    bridge = AcceptingBridge()
    gateway = GatewayProcess(folder, await bridge.serve(), WINDOW)
    try:
        port = await gateway.start(point if when == "it merges" else "")
        assert await publish(port) == (0 if when == "it merges" else READINGS)
        if when == "it closes":
            await gateway.stop()
            with suppress(Misconfigured):  # it may die before it is ready
                await gateway.start(point)
        assert await gateway.died()
        port = await gateway.start()
        if when == "it merges":
            assert await publish(port, dup=True) == READINGS

        def landed() -> list[int]:
            return counts_of({event.id: event for _, event in bridge.came}.values())

        await bridge.until(lambda: sum(landed()) >= READINGS, "no aggregate arrives")
        (stream,) = (await gateway.stop())["streams"]
    finally:
        await gateway.stop()
        bridge.close()
    assert sum(landed()) == READINGS
    assert stream["rules"] == {"means": {"merged": READINGS, "aggregate": len(landed())}}
    assert stream["stored"] == stream["backlog"] + stream["settled"] == len(landed())


@pytest.mark.fault("D15")
def test_windows_survive_a_power_cut_at_any_step(folder, memory, thorough):
    (folder / "lock").touch()
    disk = Disk(folder / "lock")
    clock = FakeClock()
    store = open_store(folder / "outbox.db", clock=clock, rules=RULES, connect=disk.connect)
    acknowledged = 0
    for number in range(40):
        arrivals = [
            make_arrival(
                device=f"d-{device}",
                data=b'{"t": %d}' % number,
                evidence=UniqueId(b"%d" % number),
                retransmission=Retransmission(b"client", again=False, number=number * DEVICES + device),
            )
            for device in range(DEVICES)
        ]
        take(store, *arrivals)
        acknowledged += DEVICES
        disk.note(acknowledged)
        clock.go_on(9)
        close_windows(store)
    images, known = 0, 0
    told = 0
    for image in PowerCut(disk.record, every=2 if thorough else 10).images():
        known = max([known, *(step.note for step in disk.record[told : image.cut] if step.kind is DiskOperation.NOTE)])
        told = image.cut
        image.write(memory)
        found = open_store(memory / "outbox.db", clock=FakeClock(clock.wall_ns), rules=RULES)
        found.clock.go_on(FAR_S)
        close_windows(found)
        merged, counts = sum(counts_of(stored_events(found))), found.streams.of_lane(Lane.TELEMETRY).counts
        assert known <= merged <= known + DEVICES, f"cut after step {image.cut}, {image.how}"
        assert merged == counts.acknowledged == counts.rules.get("means", {}).get("merged", 0)
        assert counts.landing == counts.stored == len(stored_events(found))
        found.connection.close()
        images += 1
    assert images > 100
