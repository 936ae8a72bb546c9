"""Eclipse Hono's own application clients, for Kafka and for AMQP, against a real bridge, gateway and broker."""

import json
import time

import pytest
from msgspec.structs import replace

from contracts.foreign.hono_application import running
from fogline.events.event import Lane
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.settings import CommandPolicySettings
from fogline_cloud.shard.topic_admin import create_topics
from fogline_lab.amqp import within
from fogline_lab.device.command_device import CommandDevice
from fogline_lab.line.line import commandable

BODY = '{"on":true}'
REJECTED = 400
"""What Hono's AMQP client makes of the outcome rejected, whatever the condition."""
FAILURE_TYPE = "application/vnd.eclipse-hono-delivery-failure-notification+json"


@pytest.fixture(scope="module")
def application(tmp_path_factory):
    with running(tmp_path_factory.mktemp("hono")) as started:
        yield started


@pytest.fixture(params=["kafka", "amqp"])
def connect(request, application, line):
    """Connects a client of Hono's to the line, whose bridge serves by then."""
    line.cloud = replace(line.cloud, commands=CommandPolicySettings(kafka=True))
    create_topics(KafkaClients(line.cloud.kafka), line.cloud, 1)

    def client():
        addresses = {"kafka": line.cloud.kafka["bootstrap.servers"], "amqp": f"127.0.0.1:{line.port}"}
        return application.client(request.param, addresses[request.param], line.tenant)

    client.over_kafka = request.param == "kafka"
    return client


async def test_telemetry_and_events_come_with_honos_metadata(line, connect):
    before_ms = time.time() * 1000
    async with commandable(line) as (_, outbox, _), connect() as client:
        await line.put(outbox, 2, device="meter-1", ttd_s=30)
        await line.put(outbox, 3, device="meter-1", lane=Lane.ALARM, channel="event", content_type="text/plain")
        telemetry, event = await client.arrival("telemetry", "meter-1"), await client.arrival("event", "meter-1")
    for message in (telemetry, event):
        assert (message["tenant"], message["qos"], message["adapter"]) == (line.tenant, "AT_LEAST_ONCE", "mqtt")
        assert before_ms - 1000 < message["created"] < time.time() * 1000 + 1000
    assert (telemetry["body"], telemetry["contentType"], telemetry["ttd"]) == ('{"n": 2}', "application/json", 30)
    assert (event["body"], event["contentType"], event["ttd"]) == ('{"n": 3}', "text/plain", None)


async def test_a_command_is_answered_or_fails_and_a_one_way_command_runs(line, connect):
    async with commandable(line) as (_, _, downlink), connect() as client:
        unknown = await client.ask("command", device="nobody", name="switch", body=BODY)
        absent = await client.ask("command", device="lamp-1", name="switch", body=BODY)
        assert (unknown["error"], absent["error"]) == (404 if connect.over_kafka else REJECTED, 503)
        assert "nobody" in unknown["why"]
        device = CommandDevice(downlink)
        downlink.reachable("lamp-1", device)
        reply = await client.ask("command", device="lamp-1", name="switch", body=BODY)
        assert (reply["status"], reply["body"], reply["contentType"]) == (200, '{"ok":true}', "application/json")
        assert (reply["tenant"], reply["tenantProperty"], reply["device"]) == (line.tenant, line.tenant, "lamp-1")
        assert reply["created"] > 0
        device.came.clear()
        assert "error" not in await client.ask("one-way", device="lamp-1", name="switch", body=BODY)
        await within(device.came.wait(), "the one-way command is not run")
        assert len(device.ran) == 2


async def test_the_response_to_an_asynchronous_command_comes_to_its_consumer(line, connect):
    async with commandable(line) as (_, _, downlink), connect() as client:
        downlink.reachable("lamp-1", CommandDevice(downlink))
        assert "error" not in await client.ask("async", device="lamp-1", name="switch", body=BODY, correlation="c-1")
        response = await client.arrival("response", "lamp-1")
        failed = await client.ask("async", device="nobody", name="switch", body=BODY, correlation="c-2")
        if connect.over_kafka:
            failed = await client.arrival("response", "nobody")
    assert (response["correlation"], response["status"], response["body"]) == ("c-1", 200, '{"ok":true}')
    if connect.over_kafka:
        assert (failed["correlation"], failed["status"], failed["contentType"]) == ("c-2", 404, FAILURE_TYPE)
        assert failed["metadata"] == "7"
        assert "nobody" in json.loads(failed["body"])["error"]
    else:
        assert failed["error"] == REJECTED
