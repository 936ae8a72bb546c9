"""Who may do what over HTTP: logins at the bridge, rights, quotas, and what an attacker cannot exhaust."""

import asyncio
import contextlib

import pytest
from msgspec.structs import replace

from e2e.guarded import guarded
from e2e.http_api import COMMANDS, SWITCH, basic, served
from fogline.errors import Misconfigured
from fogline.events.event import Lane
from fogline_cloud.api import http_server
from fogline_cloud.api.api import Api
from fogline_cloud.api_settings import ApiSettings, ApiTlsSettings
from fogline_lab.amqp import within
from fogline_lab.credentials.authority_folder import HERE, PASSWORD
from fogline_lab.device.command_device import CommandDevice
from fogline_lab.waiting import until_not

ALICE, WEATHER = basic("alice", PASSWORD), basic("weather", PASSWORD)


async def test_logins_rights_and_quotas_are_those_of_the_bridge(line):
    line, https = guarded(line)
    async with served(line, **https) as (found, downlink, *_):
        http = found.http
        downlink.reachable("lamp-1", CommandDevice(downlink))
        for headers in ({}, {"authorization": "Bearer x"}, basic("alice", "wrong"), basic("eve", PASSWORD), basic("a/b", "")):
            refused = await http.post(COMMANDS, json=SWITCH, headers=headers)
            assert (refused.status_code, refused.headers["www-authenticate"][:5]) == (401, "Basic")
        created = await http.post(COMMANDS, json=SWITCH, headers=ALICE, params={"wait": "30s"})
        assert (created.status_code, created.json()["operator"]) == (201, f"client {line.tenant}/alice (password)")
        forbidden = await http.post(COMMANDS, json={"name": "reboot"}, headers=ALICE)
        assert forbidden.status_code == 403
        assert "may not send command 'reboot' to lamp-1" in forbidden.json()["detail"]
        assert (await http.post(COMMANDS, json=SWITCH, headers=WEATHER)).status_code == 403
        assert (await http.post("/v1/telemetry/station-1", content=b"1", headers=ALICE)).status_code == 403
        assert (await http.get(created.headers["location"], headers=WEATHER)).status_code == 404
        assert (await http.get("/v1/commands", headers=WEATHER)).json()["commands"] == []
        assert len((await http.get("/v1/commands", headers=ALICE)).json()["commands"]) == 1
        statuses = [await http.post(COMMANDS, json=SWITCH, headers=ALICE) for _ in range(2)]
        over = statuses[-1]
        assert (over.status_code, int(over.headers["retry-after"]) > 1) == (429, True)
        assert f"client {line.tenant}/alice (password) is over its quota (bridge.access): again in" in over.json()["detail"]
        elsewhere = await http.post(COMMANDS, json=SWITCH, headers={**ALICE, "origin": "https://evil.example"})
        assert (elsewhere.status_code, "other web sites" in elsewhere.json()["detail"]) == (403, True)
        assert (await http.get("/healthz")).text == "ok\n"
        assert (await http.get("/openapi.json")).json()["openapi"] == "3.1.0"
        events = [await http.post("/v1/telemetry/station-1", content=b"1", headers=WEATHER) for _ in range(4)]
        assert [each.status_code for each in events] == [202, 202, 202, 429]


async def test_beyond_loopback_the_api_needs_tls_on_both_sides(line):
    for settings, part in (
        ({}, "[api.tls]"),
        ({"tls": ApiTlsSettings(certificate="c", key="k")}, "[operator.tls]"),
    ):
        with pytest.raises(Misconfigured, match=r"beyond loopback the API needs") as error:
            Api(replace(line.cloud, api=ApiSettings(listen="0.0.0.0:0", **settings)))
        assert part in str(error.value)


async def test_slow_clients_are_cut_and_connections_are_bounded(line, monkeypatch):
    monkeypatch.setattr(http_server, "HEAD_S", 0.5)
    monkeypatch.setattr("fogline_cloud.api.requests.BODY_S", 0.5)
    async with served(line, max_connections=5) as (found, *_):
        port = int(found.url.rpartition(":")[2])
        post = f"POST /v1/telemetry/d HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-length: 10\r\n\r\n".encode()
        silent = [await asyncio.open_connection(HERE, port) for _ in range(3)]
        silent[1][1].write(b"GET /healthz HTTP/1.1\r\nx: ")
        silent[2][1].write(post + b"abc")
        answers = [await within(reader.read(), "a slow client is not cut") for reader, _ in silent]
        assert (answers[0], answers[1], answers[2][:12]) == (b"", b"", b"HTTP/1.1 408")
        many = [await asyncio.open_connection(HERE, port) for _ in range(8)]
        ends = [asyncio.create_task(within(reader.read(), "not closed")) for reader, _ in many]
        assert (await found.http.get("/healthz")).status_code == 200, "silent ones make room"
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        assert found.api.context.counters.connections_refused >= 3
        for each in ends:
            assert await each == b""
        for _, writer in (*silent, *many):
            writer.close()

        async def some() -> bool:
            return found.api._server.connections > 0

        await until_not(some, "connections are left")
        reader, writer = await asyncio.open_connection(HERE, port)
        writer.write(b"GET /healthz HTTP/1.1\r\nhost: x\r\nx: " + b"a" * 70_000)
        with contextlib.suppress(ConnectionResetError):  # it is closed with the rest of the head unread
            assert (await within(reader.read(), "no answer"))[:12] in (b"HTTP/1.1 400", b"")
        writer.close()
        big = await found.http.post("/v1/telemetry/d", content=b"a" * 1_000_001)
        assert (big.status_code, "1000000 bytes" in big.json()["detail"]) == (413, True)


async def test_events_of_services_land_once_with_an_id(line):
    async with served(line) as (found, *_):
        for host in ("evil.example:8080", "x"):
            rebound = await found.http.post("/v1/telemetry/station-1", content=b"1", headers={"host": host})
            assert (rebound.status_code, "127.0.0.1" in rebound.json()["detail"]) == (403, True)
        malformed = await found.http.post("/v1/telemetry/station-1", content=b"1", headers={"host": "["})
        assert malformed.status_code == 400
        headers = {"ce-specversion": "1.0", "ce-id": "r-1", "ce-source": "/w", "content-type": "application/json"}
        for _ in range(2):
            sent = await found.http.post("/v1/telemetry/station-1", content=b'{"n":7}', headers=headers)
            assert (sent.status_code, sent.content) == (202, b"")
        cloud_event = {"specversion": "1.0", "id": "r-1", "source": "/w", "type": "reading", "data": {"n": 7}}
        structured = {"content-type": "application/cloudevents+json"}
        sent = await found.http.post("/v1/telemetry/station-1", json=cloud_event, headers=structured)
        assert sent.status_code == 202
        alarm = await found.http.post("/v1/events/station-1", content=b"fire", headers={"idempotency-key": "a-1"})
        assert alarm.status_code == 202
        for body in ({**cloud_event, "id": ""}, {**cloud_event, "data_base64": "MQ=="}, {}, {**cloud_event, "type": 1}):
            refused = await found.http.post("/v1/telemetry/station-1", json=body, headers=structured)
            assert (refused.status_code, "CloudEvent" in refused.json()["detail"]) == (400, True)
        wrong = await found.http.post("/v1/telemetry/station-1", content=b"1", headers={"ce-id": "x", "ce-time": "noon"})
        assert (wrong.status_code, "RFC 3339" in wrong.json()["detail"]) == (400, True)
        records = [dict(each.headers) for each in await asyncio.to_thread(line.records)]
        landed = [each for each in records if each["device_id"] == b"station-1"]
        alarms = await asyncio.to_thread(line.records, Lane.ALARM)
    assert len({each["ce_id"] for each in landed}) == 1
    assert len(landed) == 3
    assert [each.value for each in alarms] == [b"fire"]


async def test_a_stream_has_states_of_commands_and_goes_on_after_the_last_id(line):
    async with served(line, max_streams=1) as (found, downlink, *_):
        downlink.reachable("lamp-1", CommandDevice(downlink))
        url = "/v1/events/stream"
        async with found.http.stream("GET", url, params={"kind": "command", "device": "lamp-1"}) as stream:
            lines = stream.aiter_lines()
            assert await anext(lines) == ": fogline"
            assert (await found.http.get(url)).status_code == 503
            await found.http.post(COMMANDS, json=SWITCH, params={"wait": "30s"})
            seen = await within(until_state(lines, "SUCCEEDED"), "the stream does not show the verdict")

        async def open_still() -> bool:
            return found.api.context.streams > 0

        await until_not(open_still, "the stream is not ended")
        first = seen[0]
        async with found.http.stream("GET", url, headers={"last-event-id": first}) as stream:
            again = await within(until_state(stream.aiter_lines(), "SUCCEEDED"), "the stream does not go on")
        assert int(again[0].rpartition("-")[2]) == int(first.rpartition("-")[2]) + 1
        await until_not(open_still, "the stream is not ended")
        async with found.http.stream("GET", url, headers={"last-event-id": "other-1"}) as stream:
            lines = stream.aiter_lines()
            assert [await anext(lines), await anext(lines)][1] == "event: missed"


async def until_state(lines, state):
    """Read events until a command is in a state. Return their ids."""
    ids = []
    async for text in lines:
        if text.startswith("id: "):
            ids.append(text.removeprefix("id: "))
        if text.startswith("data: ") and f'"state":"{state}"' in text:
            return ids
    raise AssertionError("the stream has ended")
