"""An operator switches a Zigbee plug: `fogline command`, bridge, gateway, a real Mosquitto, and Zigbee2MQTT's topics."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest

from e2e.command_line import fogline
from fogline.amqp.backoff import Backoff
from fogline_edge.adapters.mqtt_client.client import MqttClient
from fogline_edge.broker_settings import MqttClientSettings
from fogline_lab.device.zigbee2mqtt_program import REFUSED, Zigbee2MqttProgram
from fogline_lab.line.line import gateway, serving
from fogline_lab.mosquitto_process import Mosquitto, installed_mosquitto
from fogline_lab.waiting import until

PLUG = "0x00158d00018255df"


@asynccontextmanager
async def zigbee_site(line):
    """A gateway with a broker and Zigbee2MQTT behind it; the plug has reported once."""
    broker = Mosquitto(line.folder).start()
    program = await asyncio.to_thread(Zigbee2MqttProgram, broker.port, {PLUG: "hall/plug"})
    try:
        async with serving(line), gateway(line) as (outbox, downlink):
            settings = MqttClientSettings(
                name="zigbee", profile="zigbee2mqtt", broker=f"127.0.0.1:{broker.port}", send_commands=True
            )
            client = MqttClient(outbox.port, settings, Backoff(base_s=0.05, cap_s=0.5), downlink)
            await client.start()
            await until(lambda: client.counters.learned, "the client is not subscribed")
            await asyncio.to_thread(program.report, "hall/plug", state="OFF", power=0)
            await until(lambda: client.counters.stored >= 2, "the plug's report is not stored")
            await line.drained(outbox)
            yield program, downlink
            await client.close()
    finally:
        await asyncio.to_thread(program.close)
        broker.kill()


@pytest.mark.skipif(installed_mosquitto() is None, reason="mosquitto is not installed")
async def test_operator_switches_a_zigbee_plug_and_reads_its_state(line):
    async with zigbee_site(line) as (program, downlink):
        shown = await fogline(line, "show", PLUG, "--json", group="device")
        facts = json.loads(shown.out)
        assert (facts["name"], facts["vendor"], facts["model"]) == ("hall/plug", "Xiaomi", "ZNCZ02LM")
        on = await fogline(line, "send", PLUG, "set", "--json", '{"state": "ON"}')
        assert (on.status, json.loads(on.out)) == (0, {"state": "ON", "power": 0})
        assert "SUCCEEDED 200" in on.err
        program.behaviour["hall/plug"] = REFUSED
        failed = await fogline(line, "send", PLUG, "set", "--json", '{"state": "OFF"}')
        assert failed.status == 1
        assert "FAILED 422, Publish 'set' 'state' to 'hall/plug' failed" in failed.err
        await asyncio.to_thread(program.set_available, "hall/plug", online=False)
        await until(lambda: downlink._runner.queues.executor(PLUG) is None, "the plug is not unreachable")
        away = await fogline(line, "send", PLUG, "set", "--json", '{"state": "OFF"}', "--ttl", "3s")
        assert (away.status, "EXPIRED 408" in away.err) == (1, True)
        opened = await fogline(line, "send", "zigbee2mqtt", "permit_join", "--json", '{"time": 20}')
        assert (opened.status, json.loads(opened.out)["status"]) == (0, "ok")
