"""Desired states over HTTP, and changes of devices at a bridge that does not own their shard."""

import asyncio

import pytest

from e2e.device_registry import edited, known, registry
from e2e.http_api import api, served
from e2e.lamp import Lamp
from fogline.address import shard_of
from fogline.amqp.outcome import ACCEPTED, NOT_FOUND
from fogline_lab.line.bridge_pair import two_bridges
from fogline_lab.waiting import until_not

LAMP = "/v1/devices/lamp-1/desired"
ON = {"desired": {"on": True}, "command": "switch"}
OFF = {"desired": {"on": False}, "command": "switch"}


async def stated(http, state):
    """The desired state, once it has this progress."""
    found = {}

    async def not_yet() -> bool:
        found.update((await http.get(LAMP)).json())
        return found["state"] != state

    await until_not(not_yet, f"the desired state is not {state}")
    return found


async def test_a_desired_state_is_put_shown_and_reaches_the_device_once(learning):
    async with served(learning) as (found, downlink, bridge, _):
        lamp = Lamp(downlink)
        downlink.reachable("lamp-1", lamp)
        await known(bridge, lambda table: table.get("lamp-1") is not None)
        http = found.http
        none = await http.get(LAMP)
        put = await http.put(LAMP, json=ON, headers={"Idempotency-Key": "order-1"})
        again = await http.put(LAMP, json=ON, headers={"Idempotency-Key": "order-1"})
        other = await http.put(LAMP, json=OFF, headers={"Idempotency-Key": "order-1"})
        shown = await stated(http, "SUCCEEDED")
        etag = (await http.get(LAMP)).headers["etag"]
    assert put.status_code == again.status_code == 200, put.text
    assert (put.headers["etag"], again.headers["etag"], etag) == ('"1"', '"1"', '"1"')
    assert (shown["desired"], shown["reported"], shown["difference"]) == ({"on": True}, {"on": True}, {})
    assert (other.status_code, "known with another desired state of lamp-1" in other.json()["detail"]) == (409, True)
    assert lamp.states == [{"on": True}]
    assert (none.status_code, none.json()["detail"]) in [
        (404, "device 'lamp-1' has no desired state"),
        (404, "device 'lamp-1' is not in the registry"),  # the API has not read it yet
    ]


async def test_second_writer_with_the_same_etag_gets_412(learning):
    async with served(learning) as (found, _, bridge, _):
        await known(bridge, lambda table: table.get("lamp-1") is not None)
        http = found.http
        first = await http.put(LAMP, json=ON, headers={"If-None-Match": "*"})
        second = await http.put(LAMP, json=OFF, headers={"If-None-Match": "*"})
        third = await http.put(LAMP, json=OFF, headers={"If-Match": first.headers["etag"]})
        late = await http.put(LAMP, json=ON, headers={"If-Match": first.headers["etag"]})
    assert (first.status_code, first.headers["etag"]) == (200, '"1"')
    assert (second.status_code, second.json()["detail"]) == (412, "the desired state of lamp-1 has version 1, not 0")
    assert (third.status_code, third.json()["version"], third.json()["desired"]) == (200, 2, {"on": False})
    assert (late.status_code, late.json()["detail"]) == (412, "the desired state of lamp-1 has version 2, not 1")


@pytest.mark.parametrize(
    ("device", "body", "headers", "status", "detail"),
    [
        ("nobody", ON, {}, 404, "device nobody is not in the registry"),
        ("lamp-1", {"desired": 1}, {}, 400, "the desired state"),
        ("lamp-1", {**ON, "command": "a b"}, {}, 400, "is not a name of a command"),
        ("lamp-1", {"desired": {"x": "y" * 9000}}, {}, 413, "8192 bytes"),
        ("lamp-1", ON, {"If-Match": "3"}, 400, "is not an ETag of this address"),
        ("lamp-1", ON, {"If-Match": 'W/"1"'}, 412, "is not the version"),
    ],
)
async def test_wrong_input_is_one_sentence(learning, device, body, headers, status, detail):
    async with served(learning) as (found, _, bridge, _):
        await known(bridge, lambda table: table.get("lamp-1") is not None)
        answer = await found.http.put(f"/v1/devices/{device}/desired", json=body, headers=headers)
    assert answer.status_code == status, answer.text
    assert detail in answer.json()["detail"]


async def test_any_bridge_takes_a_change_of_any_device(line):
    async with two_bridges(line) as pair:
        devices = (
            next(f"lamp-{n}" for n in range(9) if not shard_of(f"lamp-{n}", 2)),
            next(f"lamp-{n}" for n in range(9) if shard_of(f"lamp-{n}", 2)),
        )
        for name, tag in zip(pair.bridges, ("a", "b"), strict=True):
            for device in devices:
                outcome = await edited(line, device, "set", b'{"tags": {"%s": "1"}}' % tag.encode(), pair.addresses[name])
                assert outcome == ACCEPTED
            unknown = await edited(line, "nobody", "forget", where=pair.addresses[name])
            assert unknown.condition == NOT_FOUND
        found = await asyncio.to_thread(registry, line)
        assert [found.get(device).tags for device in devices] == [{"a": "1", "b": "1"}] * 2
        for name in pair.bridges:
            async with api(line, pair.port(name)) as served_there:
                for device in devices:
                    answer = await served_there.http.put(f"/v1/devices/{device}/desired", json=ON)
                    assert (answer.status_code, answer.json()["state"]) == (200, "WAITING"), answer.text
