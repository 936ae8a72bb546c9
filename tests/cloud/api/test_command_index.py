"""The commands that the API knows."""

import asyncio

from msgspec.structs import replace

from fogline.commands.command import CommandState
from fogline_cloud.api import command_index
from fogline_cloud.api.command_index import CommandIndex, request_of
from fogline_cloud.commands.client.verdict import CommandVerdict
from fogline_cloud.commands.record import CommandRecord

SENT = CommandRecord(
    id="C1",
    tenant="acme",
    gateway="gw-1",
    device="lamp-1",
    name="switch",
    state=CommandState.ACCEPTED,
    operator="client acme/alice (password)",
    accepted_ms=1,
    expires_ms=2,
    changed_ms=1,
    digest="00",
    correlation="string:m-1",
    reply_to="http",
)
NAME = request_of(SENT.operator, "m-1")
DONE = CommandVerdict(CommandState.SUCCEEDED, 200, "C1", b"{}", "application/json")


async def test_the_states_of_a_command_are_kept_in_their_order_each_once():
    index = CommandIndex(10, lambda _: None)
    states = [(CommandState.ACCEPTED, 1), (CommandState.DISPATCHED, 2), (CommandState.DISPATCHED, 2), (CommandState.FAILED, 3)]
    for state, changed_ms in states:
        index.put(replace(SENT, state=state, changed_ms=changed_ms))
    steps = [(each.state, each.changed_ms) for each in index.steps("C1")]
    assert steps == [(CommandState.ACCEPTED, 1), (CommandState.DISPATCHED, 2), (CommandState.FAILED, 3)]
    assert index.steps("C2") == ()


async def test_the_oldest_commands_are_forgotten(monkeypatch):
    index = CommandIndex(2, lambda _: None)
    for number in range(3):
        index.put(replace(SENT, id=f"C{number}", correlation=f"string:m-{number}"))
    assert [each.id for each in index.newest_first()] == ["C2", "C1"]
    assert (index.get("C0"), index.find(request_of(SENT.operator, "m-0"))) == (None, None)
    monkeypatch.setattr(command_index, "MAX_BYTES", 2500)
    index.put(replace(SENT, id="C3", data_base64="x" * 900))
    assert [each.id for each in index.newest_first()] == ["C3"]


async def test_a_reply_is_known_before_the_record_and_the_record_completes_it():
    seen: list[CommandRecord] = []
    index = CommandIndex(10, seen.append)
    index.take_verdict(NAME, replace(SENT, id="", gateway="", digest=""), DONE)
    assert (index.get("C1").state, index.get("C1").gateway) == (CommandState.SUCCEEDED, "")
    index.put(SENT)
    assert index.get("C1").state is CommandState.SUCCEEDED
    index.put(replace(SENT, state=CommandState.SUCCEEDED, status=200))
    assert (index.get("C1").state, index.get("C1").gateway) == (CommandState.SUCCEEDED, "gw-1")
    assert [each.state for each in seen] == [CommandState.SUCCEEDED] * 2


async def test_waiting_requests_are_woken_by_a_change_or_by_the_stop():
    index = CommandIndex(10, lambda _: None)
    waits = [asyncio.create_task(index.change(key, 60)) for key in ("C1", NAME)]
    await asyncio.sleep(0)
    index.put(SENT)
    await asyncio.wait_for(asyncio.gather(*waits), 60)
    assert index.waiting == 0
    last = asyncio.create_task(index.change("C1", 60))
    await asyncio.sleep(0)
    index.stop()
    await asyncio.wait_for(last, 60)
    await asyncio.wait_for(index.change("C1", 60), 60)
