"""Commands over HTTP: sent, shown, listed and refused, by the real API, bridge, gateway and broker."""

import asyncio
import base64
import itertools
import json

import pytest

from e2e.http_api import COMMANDS, SWITCH, api, served
from fogline.address import DeviceAddress
from fogline.amqp.security import ClientSecurity
from fogline.commands.command import CommandState
from fogline_cloud.api.command_routes import MAX_PAGE_BYTES
from fogline_cloud.commands.client.operator import Ask, Operator
from fogline_cloud.devices.client import edit_device
from fogline_lab.amqp import within
from fogline_lab.bridge.command_records import make_record
from fogline_lab.device.command_device import CommandDevice
from fogline_lab.line.bridge_pair import two_bridges
from fogline_lab.waiting import until_not


async def test_a_command_is_created_shown_and_listed_and_one_request_waits_for_its_verdict(line):
    async with served(line) as (found, downlink, *_):
        device = CommandDevice(downlink)
        downlink.reachable("lamp-1", device)
        created = await found.http.post(COMMANDS, json=SWITCH)
        assert (created.status_code, created.json()["device"]) == (201, "lamp-1")
        shown = await found.http.get(created.headers["location"], params={"wait": "30s"})
        assert (shown.status_code, shown.json()["state"], shown.json()["status"]) == (200, "SUCCEEDED", 200)
        assert shown.json()["reply"] == {"content_type": "application/json", "data": {"ok": True}}
        listed = (await found.http.get("/v1/commands", params={"device": "lamp-1", "state": "SUCCEEDED"})).json()
        assert [each["id"] for each in listed["commands"]] == [shown.json()["id"]]
        assert device.ran == [shown.json()["id"]]
        for durable in (True, False):
            created = await found.http.post(COMMANDS, params={"wait": "30s"}, json={**SWITCH, "durable": durable})
            assert (created.status_code, created.json()["state"]) == (201, "SUCCEEDED")
        assert len(device.ran) == 3


async def test_a_list_has_pages_and_a_direct_command_for_a_device_that_is_away_is_refused(line):
    async with served(line) as (found, downlink, *_):
        refused = await found.http.post(COMMANDS, json={**SWITCH, "durable": False})
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert refused.json()["detail"] == "the device is not connected"

        async def not_listed() -> bool:
            return not (await found.http.get("/v1/commands", params={"state": "REJECTED"})).json()["commands"]

        await until_not(not_listed, "the refused command is not listed")
        downlink.reachable("lamp-1", CommandDevice(downlink))
        sent = [(await found.http.post(COMMANDS, json=SWITCH)).json()["id"] for _ in range(3)]
        first = (await found.http.get("/v1/commands", params={"limit": "2"})).json()
        second = (await found.http.get("/v1/commands", params={"limit": "2", "after": first["next"]})).json()
        assert [each["id"] for each in (*first["commands"], *second["commands"])][:3] == sent[::-1]
        assert second["commands"][-1]["state"] == "REJECTED"
        assert second["next"] is None
        later = (await found.http.get("/v1/commands", params={"since": "2999-01-01T00:00:00Z"})).json()
        assert later == {"commands": [], "next": None}


async def test_a_page_of_commands_with_large_replies_is_short_and_the_next_one_goes_on(line):
    reply = base64.b64encode(bytes(250_000)).decode()
    async with served(line) as (found, *_):
        for number in range(30):
            found.api.context.commands.put(make_record(f"c-{number}", accepted_ms=number, reply_base64=reply))
        listed, after = [], {}
        while True:
            page = await found.http.get("/v1/commands", params=after)
            assert len(page.content) < MAX_PAGE_BYTES + 1_000_000
            listed += [each["id"] for each in page.json()["commands"]]
            if page.json()["next"] is None:
                break
            after = {"after": page.json()["next"]}
        assert listed == [f"c-{number}" for number in reversed(range(30))]


async def test_the_same_key_is_the_same_command_also_at_another_api(line):
    async with served(line) as (found, downlink, *_), api(line) as other:
        device = CommandDevice(downlink)
        downlink.reachable("lamp-1", device)
        key = {"idempotency-key": "order-1"}
        created = [await each.http.post(COMMANDS, json=SWITCH, headers=key) for each in (found, other, found)]
        assert {each.status_code for each in created} == {201}
        assert len({each.json()["id"] for each in created}) == 1
        others = {"data": {"on": False}}, {"one_way": True}, {"ttl_s": 61}, {"newest_wins": True}, {"durable": False}
        for change, each in itertools.product(others, (found, other)):
            refused = await each.http.post(COMMANDS, params={"wait": "1s"}, json={**SWITCH, **change}, headers=key)
            assert (refused.status_code, "is known with another body" in refused.json()["detail"]) == (409, True), change
        refused = await found.http.post(COMMANDS.replace("lamp-1", "lamp-2"), json=SWITCH, headers=key)
        assert refused.status_code == 409
        await found.http.get(created[0].headers["location"], params={"wait": "30s"})
        assert len(device.ran) == 1


async def test_input_that_cannot_be_read_is_refused_and_named(line):
    async with served(line) as (found, *_):
        for body, part in (
            (b"{", "the command"),
            (b"[]", "the command"),
            (b'{"data": 1}', "missing field `name`"),
            (b'{"name": "x", "colour": 1}', "colour"),
            (b'{"name": "x", "data": 1, "data_base64": "MQ=="}', "not both"),
            (b'{"name": "x", "ttl_s": -1}', "ttl_s"),
            (b'{"name": "a/b"}', "a/b"),
        ):
            refused = await found.http.post(COMMANDS, content=body)
            assert (refused.status_code, part in refused.json()["detail"]) == (400, True), body
        for path, part in (
            ("/v1/commands?state=DONE", "SUCCEEDED"),
            ("/v1/commands?since=yesterday", "2026-01-31T12:00:00Z"),
            ("/v1/commands?limit=0", "1 to 200"),
            ("/v1/commands?colour=red", "'colour'"),
            ("/v1/commands?limit=1&limit=2", "twice"),
            ("/v1/commands?after=x", "'x'"),
            ("/v1/commands/x?wait=1h", "60 seconds"),
        ):
            refused = await found.http.get(path)
            assert (refused.status_code, part in refused.json()["detail"]) == (400, True), path
        assert (await found.http.get("/v1/commands/x")).status_code == 404
        assert (await found.http.get("/v2")).json()["detail"] == "there is no such address; see /openapi.json"
        assert (await found.http.delete("/v1/commands")).status_code == 405


@pytest.mark.slow
async def test_the_api_at_any_bridge_reaches_the_device_and_a_takeover_has_no_second_effect(line):
    async with two_bridges(line) as pair, pair.gateway() as (downlink, owner, other), api(line, port=pair.port(other)) as found:
        device = CommandDevice(downlink, answer=None)
        downlink.reachable("lamp-1", device)
        key = {"idempotency-key": "order-1"}
        created = await found.http.post(COMMANDS, json={**SWITCH, "ttl_s": 60}, headers=key)
        assert created.status_code == 201
        await within(device.came.wait(), "the command does not arrive")
        waiting = asyncio.create_task(found.http.get(created.headers["location"], params={"wait": "60s"}))
        await pair.stop(owner)
        copy = await found.http.post(COMMANDS, json={**SWITCH, "ttl_s": 60}, headers=key)
        assert copy.status_code in (201, 503)
        downlink.answer("lamp-1", device.ran[0], CommandDevice(downlink).answer, lambda _: None)
        assert (await waiting).json()["state"] == "SUCCEEDED"
        assert len(device.ran) == 1


async def test_a_request_that_waits_gets_503_when_the_api_stops(line):
    async with served(line) as (found, downlink, *_):
        downlink.reachable("lamp-1", CommandDevice(downlink, answer=None))
        created = await found.http.post(COMMANDS, json=SWITCH)
        waiting = asyncio.create_task(found.http.get(created.headers["location"], params={"wait": "60s"}))

        async def none_waits() -> bool:
            return not found.api.context.commands.waiting

        await until_not(none_waits, "the request does not wait")
        await found.api.close()
        assert ((await waiting).status_code, (await waiting).headers["retry-after"]) == (503, "1")


async def test_a_command_is_cancelled_before_its_device_sees_it_and_not_after(line):
    async with served(line) as (found, downlink, *_):
        waiting = (await found.http.post(COMMANDS, json=SWITCH)).json()
        cancelled = await found.http.delete(f"/v1/commands/{waiting['id']}")
        assert (cancelled.status_code, cancelled.json()["state"]) == (200, "CANCELLED")
        device = CommandDevice(downlink)
        downlink.reachable("lamp-1", device)
        done = (await found.http.post(COMMANDS, json=SWITCH, params={"wait": "30s"})).json()
        async with Operator("127.0.0.1", line.port, line.tenant) as operator:
            for command_id, status in ((done["id"], 409), ("0" * 32, 404)):
                refused = await found.http.delete(f"/v1/commands/{command_id}")
                verdict = await within(operator.cancel(command_id), "no verdict")
                assert (refused.status_code, refused.json()["detail"]) == (status, verdict.why)
        assert device.ran == [done["id"]]


async def test_devices_are_shown_and_a_wrong_argument_is_refused_before_it_travels(line):
    async with served(line) as (found, downlink, *_), Operator("127.0.0.1", line.port, line.tenant) as operator:
        device = CommandDevice(downlink)
        downlink.reachable("lamp-1", device)
        schema = {"switch": {"type": "object", "required": ["on"]}}
        edit = DeviceAddress(line.tenant, "lamp-1"), "set", json.dumps({"type": "lamp", "commands": schema}).encode()
        assert (await edit_device(f"127.0.0.1:{line.port}", *edit, security=ClientSecurity())).state == "accepted"

        async def not_shown() -> bool:
            shown = await found.http.get("/v1/devices/lamp-1")
            return shown.status_code == 404 or shown.json()["commands"] != schema

        await until_not(not_shown, "the device is not shown")
        listed = (await found.http.get("/v1/devices", params={"where": "type=lamp", "limit": 1})).json()
        assert [each["device"] for each in listed["devices"]] == ["lamp-1"]
        assert (await found.http.get("/v1/devices?where=type=x")).json() == {"devices": [], "next": None}
        assert (await found.http.get("/v1/devices?where=lamp")).status_code == 400
        assert (await found.http.get("/v1/devices/nobody")).status_code == 404

        async def taken() -> bool:
            return (await found.http.post(COMMANDS, json={"name": "switch", "data": {}})).status_code != 422

        await until_not(taken, "the bridge does not know what the device takes")
        verdict = await within(operator.request(Ask("lamp-1", "switch", b"{}", "application/json")), "no verdict")
        refused = await found.http.post(COMMANDS, json={"name": "switch", "data": {}})
        assert (refused.status_code, refused.json()["detail"]) == (verdict.status, verdict.why) == (422, verdict.why)


async def test_commands_wait_in_order_and_the_newest_replaces_those_of_its_name(line):
    """X7: over HTTP and AMQP alike."""
    async with served(line) as (found, downlink, *_):
        sent = [(await found.http.post(COMMANDS, json={"name": "dim", "data": number})).json()["id"] for number in range(2)]
        replaced = (await found.http.post(COMMANDS, json=SWITCH)).json()["id"]
        newest = (await found.http.post(COMMANDS, json={**SWITCH, "newest_wins": True})).json()["id"]
        end = (await found.http.get(f"/v1/commands/{replaced}", params={"wait": "30s"})).json()
        assert (end["state"], end["status"], end["why"]) == ("CANCELLED", 410, f"replaced by {newest}")
        async with Operator("127.0.0.1", line.port, line.tenant) as operator:
            asked = asyncio.create_task(operator.request(Ask("lamp-1", "switch", newest_wins=True)))
            end = (await found.http.get(f"/v1/commands/{newest}", params={"wait": "30s"})).json()
            device = CommandDevice(downlink)
            downlink.reachable("lamp-1", device)
            verdict = await within(asked, "no verdict")
        assert (verdict.state, end["why"]) == (CommandState.SUCCEEDED, f"replaced by {verdict.command_id}")
        assert device.ran == [*sent, verdict.command_id]
        direct = await found.http.post(COMMANDS, json={**SWITCH, "newest_wins": True, "durable": False})
        why = "newest_wins is for a command that waits for its device: make it durable, with a ttl"
        assert (direct.status_code, direct.json()["detail"]) == (400, why)
