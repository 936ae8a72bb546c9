"""Commands that applications send over Kafka, written after Eclipse Hono's Command & Control API for Kafka."""

import asyncio
import json

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from msgspec.structs import replace

from e2e.device_registry import edited, known
from fogline.events.event import Lane
from fogline_cloud.bridge.commands import operators
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.settings import CommandPolicySettings
from fogline_cloud.shard.topic_admin import create_topics
from fogline_lab.device.command_device import CommandDevice
from fogline_lab.line.bridge_pair import two_bridges
from fogline_lab.line.line import Line, commandable, gateway, serving
from fogline_lab.waiting import LIMIT_S, until_not

METADATA = "delivery-failure-notification-metadata"
FAILURE_TYPE = "application/vnd.eclipse-hono-delivery-failure-notification+json"


@pytest.fixture
def hono(line):
    line.cloud = replace(line.cloud, commands=CommandPolicySettings(kafka=True, direct_ttl_s=60))
    create_topics(KafkaClients(line.cloud.kafka), line.cloud, 1)
    return Application(line)


class Application:
    """An application of Hono: a producer of commands, and a consumer of the responses."""

    def __init__(self, line: Line):
        self.line = line
        self._producer = Producer({"bootstrap.servers": line.cloud.kafka["bootstrap.servers"]})

    def send(self, device="lamp-1", correlation="c-1", partition=0, key=None, body=b'{"on":true}', **headers):
        asked = {"correlation-id": correlation, "response-required": "true"} if correlation else {}
        found = {"device_id": device, "subject": "switch", "content-type": "application/json", **asked, **headers}
        written = [(name, value.encode()) for name, value in found.items() if value is not None]
        topic = topics.command(self.line.tenant)
        self._producer.produce(topic, body, key or device, headers=written, partition=partition)
        assert self._producer.flush(LIMIT_S) == 0

    async def responses(self, count):
        """Headers and bodies by correlation id, of all responses, once there are so many."""
        found = []

        async def missing():
            nonlocal found
            records = await asyncio.to_thread(self.line.records, Lane.REPLY)
            read = [(dict(each.headers), each) for each in records]
            found = [each for each in read if "status" in each[0]]  # a gateway's statements are on the topic, too
            return len(found) < count

        await until_not(missing, f"there are not {count} responses")
        assert len(found) == count
        assert all(record.key == headers["device_id"] for headers, record in found)
        assert all(headers["tenant_id"] == self.line.tenant.encode() for headers, _ in found)
        assert all(int(headers["creation-time"]) > 0 for headers, _ in found)
        return {headers["correlation-id"].decode(): (headers, record.value) for headers, record in found}

    async def taken(self, ends):
        """Wait until the bridges have committed these positions."""
        group = topics.command_group(self.line.tenant)
        reader = Consumer({"bootstrap.servers": self.line.cloud.kafka["bootstrap.servers"], "group.id": group})
        wanted = [TopicPartition(topics.command(self.line.tenant), each) for each in range(len(ends))]

        async def behind():
            found = await asyncio.to_thread(reader.committed, wanted, LIMIT_S)
            return [each.offset for each in found] != ends

        await until_not(behind, f"the position does not become {ends}")
        reader.close()

    def read_again(self):
        """Set the position back, as if the last commits of it had been lost."""
        group = topics.command_group(self.line.tenant)
        consumer = Consumer({"bootstrap.servers": self.line.cloud.kafka["bootstrap.servers"], "group.id": group})
        consumer.commit(offsets=[TopicPartition(topics.command(self.line.tenant), 0, 0)], asynchronous=False)
        consumer.close()


async def test_a_command_is_run_and_its_response_is_in_kafka(hono):
    async with commandable(hono.line) as (_, _, downlink):
        device = CommandDevice(downlink)
        downlink.reachable("lamp-1", device)
        hono.send(correlation="c-1")
        headers, body = (await hono.responses(1))["c-1"]
        assert (headers["status"], headers["content-type"], body) == (b"200", b"application/json", b'{"ok":true}')
        hono.send(correlation=None)

        async def alone():
            return len(device.ran) < 2

        await until_not(alone, "the one-way command is not run")
        await hono.taken([2, -1001])


async def test_undeliverable_command_gets_a_notification_with_the_reason(hono):
    async with commandable(hono.line):
        hono.send("nobody", "c-1", **{METADATA: "a", f"{METADATA}-b": "b"})
        hono.send("lamp-1", "c-2")
        hono.send("lamp-1", "c-3", subject=None)
        hono.send("lamp-1", "c-4", key="lamp-2")
        hono.send("lamp-1", None, subject=None)
        found = await hono.responses(4)
        await hono.taken([5, -1001])
    assert {headers["content-type"].decode() for headers, _ in found.values()} == {FAILURE_TYPE}
    said = {each: (int(headers["status"]), json.loads(body)["error"]) for each, (headers, body) in found.items()}
    assert [said[each][0] for each in sorted(said)] == [404, 503, 400, 400]
    assert "not connected" in said["c-2"][1]
    assert "lamp-2" in said["c-4"][1]
    headers = found["c-1"][0]
    assert (headers[METADATA], headers[f"{METADATA}-b"]) == (b"a", b"b")


async def test_a_record_that_is_read_again_is_not_run_again(hono):
    line = hono.line
    async with commandable(line) as (_, _, downlink):
        device = CommandDevice(downlink)
        downlink.reachable("lamp-1", device)
        hono.send(correlation="c-1")
        hono.send("lamp-2", "c-2")
        await hono.responses(2)
        await hono.taken([2, -1001])
    hono.read_again()
    async with serving(line), gateway(line) as (_, downlink):
        downlink.reachable("lamp-1", device)
        await hono.taken([2, -1001])
        found = await hono.responses(3)  # nothing is known of a command for an unknown device
    assert len(device.ran) == 1
    assert sorted(found) == ["c-1", "c-2"]


async def test_any_bridge_takes_a_command_for_any_gateway(hono):
    async with two_bridges(hono.line) as pair, pair.gateway("gw-1") as (downlink, *_):
        device = CommandDevice(downlink)
        downlink.reachable("lamp-1", device)
        for number in range(6):
            hono.send(correlation=f"c-{number}", partition=number % 2)
        hono.send("nobody", "c-6", partition=0)
        hono.send("nobody", "c-7", partition=1)
        found = await hono.responses(8)
        await hono.taken([4, 4])
    assert {each: int(headers["status"]) for each, (headers, _) in found.items()} == {
        **{f"c-{number}": 200 for number in range(6)},
        "c-6": 404,
        "c-7": 404,
    }
    assert len(device.ran) == len(set(device.ran)) == 6


@pytest.mark.fault("X11")
async def test_a_command_at_which_the_bridge_fails_is_notified_and_those_behind_it_are_run(hono, monkeypatch):
    read = operators.read_command

    def stumble(message, *rest, **more):
        if message.subject == "reset":
            raise ZeroDivisionError("nobody thought of this")
        return read(message, *rest, **more)

    monkeypatch.setattr(operators, "read_command", stumble)
    async with commandable(hono.line) as (bridge, _, downlink):
        device = CommandDevice(downlink)
        downlink.reachable("lamp-1", device)
        await edited(hono.line, "lamp-1", "set", b'{"commands": {"switch": true, "reset": true, "dim": {"multipleOf": 0.5}}}')
        await known(bridge, lambda table: (entry := table.get("lamp-1")) is not None and entry.record is not None)
        hono.send(correlation="c-1", subject="dim", body=b"1" * 401)
        hono.send(correlation="c-2", subject="reset")
        hono.send(correlation="c-3")
        found = await hono.responses(3)
        await hono.taken([3, -1001])
    assert {each: int(headers["status"]) for each, (headers, _) in found.items()} == {"c-1": 422, "c-2": 500, "c-3": 200}
    assert len(device.ran) == 1
