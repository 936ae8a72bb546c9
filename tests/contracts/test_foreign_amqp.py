"""AMQP 1.0 clients that others wrote, against the real bridge: rhea (JavaScript) and Apache Qpid JMS (Java)."""

import asyncio
import re

import pytest

from contracts.foreign.clients import Note, Sent
from contracts.foreign.java import QpidJms
from contracts.foreign.javascript import Rhea
from fogline.address import DeviceAddress
from fogline.amqp.security import ClientSecurity
from fogline.events.codec import MAX_MESSAGE_BYTES
from fogline.events.event import Lane
from fogline_cloud.devices.client import edit_device
from fogline_cloud.kafka.records import is_replayed
from fogline_lab.amqp import within
from fogline_lab.device.command_device import CommandDevice
from fogline_lab.line.line import commandable, serving

IDS = [
    ("string", "switch-1"),
    ("ulong", "7"),
    ("ulong", str(2**40)),
    ("uuid", "12345678-1234-5678-1234-567812345678"),
    ("binary", "00ff10"),
]
JSON = "application/json"


@pytest.fixture(params=["rhea", "qpid-jms"])
def client(request, line):
    """Makes a client of the bridge that listens by then."""
    if request.param == "rhea":
        return lambda: Rhea(line.port, line.tenant)
    classes = request.getfixturevalue("jvm")
    return lambda: QpidJms(line.port, line.tenant, classes)


async def landed(line, device, *lanes):
    """Bodies and headers of a device's events, in the order of their partition, as only committed ones are read."""
    records = await asyncio.to_thread(line.records, *lanes)
    with_headers = [(each.value.decode(), dict(each.headers)) for each in records]
    return [each for each in with_headers if each[1]["device_id"] == device.encode()]


async def test_a_command_is_answered_with_its_correlation_id_of_any_type(line, client):
    async with commandable(line) as (_, _, downlink):
        device = CommandDevice(downlink)
        downlink.reachable("lamp-1", device)
        outcomes, replies = await client().commands("lamp-1", IDS)
    assert outcomes == [Sent("accepted")] * len(IDS)
    assert {each.correlation for each in replies} == set(IDS)
    assert {(each.status, each.state, each.device, each.body) for each in replies} == {
        (200, "SUCCEEDED", "lamp-1", '{"ok":true}')
    }
    assert len(device.ran) == len(replies) == len(IDS)


async def test_a_command_that_cannot_be_carried_out_is_refused_at_once(line, client):
    async with commandable(line):
        foreign = client()
        (absent,), _ = await foreign.commands("lamp-1", IDS[:1])
        (unknown,), _ = await foreign.commands("nobody", IDS[:1])
        (persistent,), _ = await foreign.commands("lamp-1", IDS[:1], durable=True)
    assert absent == Sent("released")
    assert persistent == Sent("released")
    assert (unknown.state, unknown.condition) == ("rejected", "amqp:not-found")
    assert "nobody" in unknown.description


async def test_a_persistent_command_without_a_time_to_live_is_answered(line, client):
    """B18: JMS sends persistent by default."""
    async with commandable(line) as (_, _, downlink):
        device = CommandDevice(downlink)
        downlink.reachable("lamp-1", device)
        outcomes, replies = await client().commands("lamp-1", IDS[:1], durable=True)
    assert outcomes == [Sent("accepted")]
    assert [(each.status, each.state, each.body) for each in replies] == [(200, "SUCCEEDED", '{"ok":true}')]


async def test_jms_sends_a_command_with_its_own_defaults(line, jvm):
    """B18: `producer.send(message)`, with nothing set about delivery mode or time to live."""
    async with commandable(line) as (_, _, downlink):
        device = CommandDevice(downlink)
        downlink.reachable("lamp-1", device)
        (outcome,), (reply,) = await QpidJms(line.port, line.tenant, jvm).command_by_default("lamp-1")
    assert (outcome, reply.status, reply.body) == (Sent("accepted"), 200, '{"ok":true}')


async def test_a_one_way_command_runs(line, client):
    async with commandable(line) as (_, _, downlink):
        device = CommandDevice(downlink)
        downlink.reachable("lamp-1", device)
        command = Note('{"on":true}', subject="switch")
        assert await client().send(f"command/{line.tenant}/lamp-1", command) == [Sent("accepted")]
        await within(device.came.wait(), "it was not run")


async def test_events_land_in_kafka(line, client):
    telemetry, event = (f"{endpoint}/{line.tenant}/meter-1" for endpoint in ("telemetry", "event"))
    async with serving(line):
        foreign = client()
        told = await foreign.send(telemetry, Note('{"w":1}', content_type=JSON), Note("plain", subject="status"))
        told += await foreign.send(event, Note('{"w":3}', content_type=JSON))
        told += await foreign.send(None, Note("relayed", to=telemetry), Note("relayed", to=event))
        assert told == [Sent("accepted")] * 5
        (first, headers), (second, others), (third, _) = await landed(line, "meter-1", Lane.TELEMETRY)
        alarms = await landed(line, "meter-1", Lane.ALARM)
    assert (first, second, third) == ('{"w":1}', "plain", "relayed")
    assert (headers["content-type"], headers["ce_source"]) == (JSON.encode(), f"/{line.tenant}/devices/meter-1".encode())
    assert (others["ce_subject"], others["content-type"]) == (b"status", b"application/octet-stream")
    assert [body for body, _ in alarms] == ['{"w":3}', "relayed"]


async def test_an_event_with_an_id_of_its_own_is_known_when_it_comes_again(line, client):
    """Kafka has both copies under one id, marked so that the tables keep the first (`flows.commit`)."""
    note = Note("1", properties={"cloudEvents_id": "reading-1", "cloudEvents_source": "/meters"})
    async with serving(line):
        foreign = client()
        for _ in range(2):
            assert await foreign.send(f"telemetry/{line.tenant}/meter-1", note) == [Sent("accepted")]
        assert await foreign.send(f"telemetry/{line.tenant}/meter-1", Note("1"), Note("1")) == [Sent("accepted")] * 2
        found = [headers for _, headers in await landed(line, "meter-1", Lane.TELEMETRY)]
    assert len({each["ce_id"] for each in found[:2]}) == 1
    assert len({each["ce_id"] for each in found}) == 3
    assert [is_replayed(each) for each in found] == [True, True, False, False]


async def test_a_message_over_the_limit_ends_its_link_and_nothing_else(line, client):
    async with serving(line):
        end, other = await client().oversize(f"telemetry/{line.tenant}/meter-1", 2 * MAX_MESSAGE_BYTES)
        assert [body for body, _ in await landed(line, "meter-1", Lane.TELEMETRY)] == ["small"]
    assert (end.state, end.condition) == ("ended", "amqp:link:message-size-exceeded")
    assert str(MAX_MESSAGE_BYTES) in end.description
    assert other == Sent("accepted")


async def test_a_link_that_a_client_may_not_have_is_refused_with_the_reason(line, client):
    gateways = {f"ingest/{line.tenant}/0": "senders", f"control/{line.tenant}/gw-1": "receivers"}
    async with serving(line):
        foreign = client()
        nowhere = await foreign.refused(senders=[f"nonsense/{line.tenant}"], receivers=["nonsense"])
        not_theirs = [(await foreign.refused(**{role: [address]}))[0] for address, role in gateways.items()]
        (relayed,) = await foreign.send(None, Note("x", to=f"ingest/{line.tenant}/0"))
    assert [(each.state, each.condition) for each in nowhere] == [("ended", "amqp:not-found")] * 2
    assert "nonsense" in nowhere[0].description
    assert [(each.state, each.condition) for each in not_theirs] == [("ended", "amqp:unauthorized-access")] * 2
    assert all(re.search(address, each.description) for address, each in zip(gateways, not_theirs, strict=True))
    assert (relayed.state, relayed.condition) == ("rejected", "amqp:unauthorized-access")


async def test_b19_a_receiver_of_events_gets_those_that_its_selector_selects(line, client):
    def address(device=""):
        return f"event/{line.tenant}/{device}".rstrip("/")

    async with serving(line):
        foreign = client()
        for device in ("lamp-1", "meter-1", "meter-2"):
            assert await foreign.send(address(device), Note(device, content_type="text/plain")) == [Sent("accepted")]
        selected = await foreign.events(address(), 1, "device_id LIKE 'meter-%' AND device_id <> 'meter-1'")
        everything = await foreign.events(address(), 3)
    assert selected == [("meter-2", "meter-2")]
    assert sorted(everything) == [(each, each) for each in ("lamp-1", "meter-1", "meter-2")]


async def test_rhea_reads_the_devices_that_it_asks_for_by_properties_of_the_link(line):
    async with serving(line):
        for device, kind in (("lamp-2", b"lamp"), ("meter-1", b"meter"), ("lamp-1", b"lamp")):
            body, address = b'{"type": "%s"}' % kind, DeviceAddress(line.tenant, device)
            await edit_device(f"127.0.0.1:{line.port}", address, "set", body, security=ClientSecurity())
        assert await Rhea(line.port, line.tenant).devices(line.tenant, where="type=lamp", limit=1) == (["lamp-1"], 1)


async def test_rheas_body_in_several_sections_lands_whole(line):
    async with serving(line):
        told = await Rhea(line.port, line.tenant).send(f"telemetry/{line.tenant}/meter-1", Note(["in two ", "sections"]))
        assert told == [Sent("accepted")]
        assert [body for body, _ in await landed(line, "meter-1", Lane.TELEMETRY)] == ["in two sections"]


async def test_jms_capability_that_the_bridge_lacks_is_refused_at_once(line, jvm):
    async with serving(line):
        jms = QpidJms(line.port, line.tenant, jvm)
        for told in (await jms.temporary_queue(), await jms.transaction()):
            assert (told.state, told.condition) == ("ended", "amqp:not-implemented")
