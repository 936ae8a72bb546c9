"""What a client of a broker keeps: names of devices over a restart, and its own state."""

from fogline.events.event import Lane
from fogline_edge.adapters.mqtt_client.state import read_clients
from fogline_lab.port import MemoryPort


async def test_the_names_of_devices_outlive_a_restart(broker, connecting, eventually):
    port = MemoryPort()
    devices = '[{"ieee_address":"0x00158d0001dc126a","friendly_name":"kitchen/lamp 1"}]'
    await broker.publish("zigbee2mqtt/bridge/devices", devices, retain=True)
    async with connecting(port, broker, profile="zigbee2mqtt") as client:
        await eventually(lambda: client.counters.learned >= 1, "the names came")
        await broker.publish("zigbee2mqtt/kitchen/lamp 1", '{"state":"ON"}')
        await port.until_stored(2)
        await eventually(lambda: client.counters.acknowledged == client.counters.received, "all are acknowledged")
    await broker.publish("zigbee2mqtt/kitchen/lamp 1", '{"state":"OFF"}')
    async with connecting(port, broker, profile="zigbee2mqtt"):
        await port.until_stored(3)
    assert [(each.device, each.type) for each in port.arrivals] == [
        ("0x00158d0001dc126a", "device"),
        ("0x00158d0001dc126a", "telemetry"),
        ("0x00158d0001dc126a", "telemetry"),
    ]


async def test_a_tasmota_last_will_is_taken_although_it_is_retained(broker, connecting):
    port = MemoryPort()
    await broker.publish("tele/plug-1/LWT", "Online", retain=True)
    async with connecting(port, broker, profile="tasmota"):
        (arrival,) = await port.until_stored(1)
    assert (arrival.device, arrival.type, arrival.lane, arrival.data) == ("plug-1", "availability", Lane.ALARM, b"Online")


async def test_state_of_the_client_is_kept_for_the_status(broker, connecting, eventually):
    port = MemoryPort()
    async with connecting(port, broker) as client:
        ((name, state),) = read_clients(port.kept("mqtt-client/").items())
        assert (name, state.connected, state.problem, state.devices) == ("site", True, None, None)
        told = f"connected to 127.0.0.1:{broker.port} since {state.since}; it sends no commands (send_commands)"
        assert state.sentence == told
        broker.kill()
        await eventually(lambda: client.problem is not None, "the loss is noticed")
        ((_, state),) = read_clients(port.kept("mqtt-client/").items())
        assert not state.connected
        assert state.sentence.startswith(f"not connected to 127.0.0.1:{broker.port} since ")
        assert state.sentence.endswith(f"{client.problem}; it sends no commands (send_commands)")
