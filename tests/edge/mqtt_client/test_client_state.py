"""What a client of a broker keeps: names of devices over a restart, and its own state."""

from fogline.events.event import Lane
from fogline.process.checkup import Grade
from fogline_edge.adapters.mqtt_client.state import read_clients
from fogline_edge.operate.doctor import diagnose
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.settings import load
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


async def test_doctor_fails_a_broker_to_which_the_running_gateway_is_not_connected(broker, connecting, eventually, folder):
    config = folder / "edge.toml"
    config.write_text(
        'tenant = "acme"\ngateway = "gw-1"\ndata = "data"\nuplink.bridge = "127.0.0.1:1"\n[[mqtt_clients]]\nname = "site"\n'
        f'profile = "plain"\nbroker = "127.0.0.1:{broker.port}"\ntopics = [{{ topic = "plant/{{device}}/#" }}]\n'
    )
    outbox = Outbox.open(load(config))

    def grades():
        return [(each.grade, bool(each.remedy)) for each in diagnose(config) if each.subject == "broker site"]

    try:
        async with connecting(outbox.port, broker) as client:
            await eventually(lambda: grades() == [(Grade.OK, False)], "the doctor says that it is connected")
            broker.kill()
            await eventually(lambda: client.problem is not None, "the loss is noticed")
            await eventually(lambda: grades() == [(Grade.FAIL, True)], "the doctor says that it is not connected")
    finally:
        await outbox.close()
    assert grades() == [], "no gateway runs: nothing is known of the broker"
