"""A bridge remembers a bounded number of commands, and no operator takes the room of another (B7)."""

import asyncio
import time
from dataclasses import replace

import msgspec
import pytest

from fogline.amqp.outcome import ACCEPTED, MODIFIED, RESOURCE_LIMIT
from fogline.commands.command import CommandState, Reply
from fogline_cloud.commands import registry as module
from fogline_cloud.commands.record import ended
from fogline_cloud.commands.registry import Registry
from fogline_lab.bridge.command_records import make_ended_record, make_record
from fogline_lab.bridge.command_side import ready_command_side

DAY_MS = 86_400_000


def owed(command_id, *, operator="me", size=0, changed_ms=500, **other):
    """A command that is over, and whose operator has not accepted the reply."""
    known = make_ended_record(CommandState.SUCCEEDED)
    attributes = {"operator": operator, "reply_base64": "x" * size, "changed_ms": changed_ms, **other}
    return msgspec.structs.replace(known, id=command_id, **attributes)


def ids(known):
    return [each.id for each in known.everything()]


def test_undelivered_replies_over_the_count_limit_are_forgotten_oldest_first(monkeypatch):
    """B7: 50,000 were kept with a limit of 20,000."""
    monkeypatch.setattr(module, "OWED", replace(module.OWED, keys=10))
    known = Registry()
    for number in range(50):
        known.put(owed(f"C{number}", operator=f"op-{number}"))
    assert ids(known) == [f"C{number}" for number in range(40, 50)]
    assert known.forgotten_replies == 40
    assert [each.id for each in known.owed_to(("", "me"))] == ids(known)


def test_undelivered_replies_over_the_byte_limit_are_forgotten(monkeypatch):
    monkeypatch.setattr(module, "OWED", replace(module.OWED, size_bytes=100_000))
    known = Registry()
    for number in range(50):
        known.put(owed(f"C{number}", operator=f"op-{number}", size=19_000))
    assert ids(known) == ["C45", "C46", "C47", "C48", "C49"]


def test_undelivered_replies_over_the_age_limit_are_forgotten_despite_a_wrong_clock():
    known = Registry()
    now_ms = time.time_ns() // 1_000_000
    known.put(owed("old", changed_ms=now_ms - 9 * DAY_MS))
    known.put(owed("young", changed_ms=now_ms - 5 * DAY_MS))
    known.put(owed("from 2099", changed_ms=now_ms + 70 * 365 * DAY_MS))
    assert ids(known) == ["young", "from 2099"]


def test_an_operator_that_never_takes_its_replies_pushes_out_its_own_only(monkeypatch):
    """Isolation: the other one's answer is kept, though it is the oldest."""
    monkeypatch.setattr(module, "OWED", replace(module.OWED, keys=20))
    known = Registry()
    known.put(owed("honest", operator="honest"))
    for number in range(100):
        known.put(owed(f"C{number}", operator="greedy"))
    assert ids(known) == ["honest", *(f"C{number}" for number in range(95, 100))]


def test_delivered_replies_have_a_bound_in_bytes(monkeypatch):
    monkeypatch.setattr(module, "ENDED", replace(module.ENDED, size_bytes=100_000))
    known = Registry()
    for number in range(50):
        known.put(owed(f"C{number}", size=19_000, reply_delivered=True))
    assert len(ids(known)) == 5


def test_verdicts_that_stay_provisional_are_forgotten_like_others(monkeypatch):
    """A gateway that never comes back says nothing that would end them."""
    monkeypatch.setattr(module, "OWED", replace(module.OWED, keys=40))
    monkeypatch.setattr(module, "ENDED", replace(module.ENDED, keys=10))
    known = Registry()
    for number in range(50):
        doubt = msgspec.structs.replace(
            make_ended_record(CommandState.IN_DOUBT, provisional=True), id=f"C{number}", reply_delivered=bool(number % 2)
        )
        known.put(doubt)
    assert len(ids(known)) == 20
    assert [each.id for each in known.open_for("gw-1")] == ids(known)


def test_all_open_commands_of_a_bridge_have_a_bound_in_bytes(monkeypatch):
    monkeypatch.setattr(module, "MAX_OPEN_BYTES", 10_000)
    known = Registry()
    for number in range(50):
        each = make_record(f"C{number}", gateway=f"gw-{number}", operator=f"op-{number}", data_base64="x" * 1000)
        if known.capacity_error(each) is None:
            known.put(each)
    assert ids(known) == [f"C{number}" for number in range(5)]
    assert "10000 bytes already" in known.capacity_error(make_record("H1"))


class Unscanned(dict):
    """A dict that nobody may look through."""

    def _scanned(self):
        raise AssertionError("all records are looked through")

    __iter__ = values = items = keys = _scanned


def test_open_commands_and_due_replies_are_found_by_index():
    """B7: every submit and every hello scanned all."""
    known = Registry()
    for number in range(5):
        known.put(make_record(f"A{number}", gateway=f"gw-{number % 2}"))
    known.put(owed("B1", reply_to="you"))
    known._records = Unscanned(known._records)
    assert [each.id for each in known.open_for("gw-1")] == ["A1", "A3"]
    assert [each.id for each in known.owed_to(("", "you"))] == ["B1"]
    assert known.capacity_error(make_record("A9")) is None
    known.put(ended(make_record("A1"), CommandState.SUCCEEDED, Reply(200), 500))
    assert [each.id for each in known.open_for("gw-1")] == ["A3"]


@pytest.mark.parametrize(("bound", "value"), [("MAX_OPEN_A_GATEWAY", 10), ("MAX_OPEN_BYTES_A_GATEWAY", 10 * 2000)])
async def test_an_operator_that_floods_a_gateway_leaves_half_of_its_room_to_others(monkeypatch, bound, value):
    """Isolation, and status 429 for the one that floods."""
    monkeypatch.setattr(module, bound, value)
    commands, shard = ready_command_side()
    commands.routes.recall("lamp-1", "gw-1", 1)
    now_ms = time.time_ns() // 1_000_000
    asked = {"gateway": "", "durable": True, "accepted_ms": now_ms, "expires_ms": now_ms + 60_000, "data_base64": "x" * 1000}
    outcomes = []
    for number in range(20):
        commands.submit(make_record(f"F{number}", operator="greedy", **asked), outcomes.append)
        while not shard.changes.empty():
            change = shard.changes.get_nowait()
            change.done(change.record)
            await asyncio.sleep(0)
    assert outcomes[:5] == [ACCEPTED] * 5
    assert {each.condition for each in outcomes[5:]} == {RESOURCE_LIMIT}
    assert "too many of greedy commands wait already for gateway gw-1" in outcomes[-1].description
    commands.submit(make_record("H1", operator="honest", **asked), outcomes.append)
    assert shard.changes.get_nowait().record.id == "H1"
    commands.close()


async def test_commands_whose_records_are_being_written_count_as_open_until_their_shard_has_them_or_is_lost(monkeypatch):
    monkeypatch.setattr(module, "MAX_OPEN_A_GATEWAY", 64)
    commands, shard = ready_command_side()
    commands.routes.recall("lamp-1", "gw-1", 1)
    now_ms = time.time_ns() // 1_000_000
    asked = {"gateway": "", "durable": True, "operator": "greedy", "accepted_ms": now_ms, "expires_ms": now_ms + 60_000}
    outcomes = []

    def send(name, count):
        for number in range(count):
            commands.submit(make_record(f"{name}{number}", **asked), outcomes.append)

    send("A", 400)
    assert (shard.changes.qsize(), len(outcomes)) == (32, 368)
    assert {each.condition for each in outcomes} == {RESOURCE_LIMIT}
    while not shard.changes.empty():
        change = shard.changes.get_nowait()
        change.done(change.record)
    await asyncio.sleep(0)
    assert outcomes[368:] == [ACCEPTED] * 32
    commands.submit(make_record("B0", **{**asked, "operator": "honest"}), outcomes.append)
    shard.changes.get_nowait().give_up()
    await asyncio.sleep(0)
    assert outcomes[-1] == MODIFIED
    outcomes.clear()
    asked["operator"] = "honest"
    send("C", 400)
    assert (shard.changes.qsize(), len(outcomes)) == (32, 368)
    commands.close()


async def test_a_command_with_a_provisional_verdict_keeps_no_timer():
    commands, _ = ready_command_side()
    commands.learn(make_record(expires_ms=time.time_ns() // 1_000_000 + 60_000))
    assert list(commands.table.open) == ["C1"]
    commands.learn(make_ended_record(CommandState.IN_DOUBT, provisional=True))
    assert not commands.table.open
    commands.close()
