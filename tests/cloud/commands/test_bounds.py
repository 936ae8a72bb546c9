"""What a bridge remembers of commands is bounded, and no operator takes the room of another (B7)."""

import time

import msgspec
import pytest

from cloud.commands.test_registry import over, record
from cloud.commands.test_replies import dispatcher
from fogline.amqp.outcome import ACCEPTED, RESOURCE_LIMIT
from fogline.command import Answer, State
from fogline_cloud.commands import registry as module
from fogline_cloud.commands.record import ended
from fogline_cloud.commands.registry import Registry

DAY_MS = 86_400_000


def owed(command_id, *, operator="me", size=0, changed_ms=500, **other):
    """A command that is over, and whose operator has not taken the answer."""
    known = over(State.SUCCEEDED)
    attributes = {"operator": operator, "answer_base64": "x" * size, "changed_ms": changed_ms, **other}
    return msgspec.structs.replace(known, id=command_id, **attributes)


def ids(known):
    return [each.id for each in known.everything()]


def test_answers_that_nobody_takes_are_forgotten_by_their_number_the_oldest_first(monkeypatch):
    """B7: 50,000 were kept with a limit of 20,000."""
    monkeypatch.setattr(module, "MAX_OWED", 10)
    known = Registry()
    for number in range(50):
        known.put(owed(f"C{number}", operator=f"op-{number}"))
    assert ids(known) == [f"C{number}" for number in range(40, 50)]
    assert known.unfetched == 40
    assert [each.id for each in known.owed_to("me")] == ids(known)


def test_and_by_their_bytes(monkeypatch):
    monkeypatch.setattr(module, "MAX_OWED_BYTES", 100_000)
    known = Registry()
    for number in range(50):
        known.put(owed(f"C{number}", operator=f"op-{number}", size=19_000))
    assert ids(known) == ["C45", "C46", "C47", "C48", "C49"]


def test_and_by_their_age_whatever_clock_one_bridge_has():
    known = Registry()
    now_ms = time.time_ns() // 1_000_000
    known.put(owed("old", changed_ms=now_ms - 9 * DAY_MS))
    known.put(owed("young", changed_ms=now_ms - 5 * DAY_MS))
    known.put(owed("from 2099", changed_ms=now_ms + 70 * 365 * DAY_MS))
    assert ids(known) == ["young", "from 2099"]


def test_an_operator_that_never_takes_its_answers_pushes_out_its_own_only(monkeypatch):
    """Isolation: the other one's answer is kept, though it is the oldest."""
    monkeypatch.setattr(module, "MAX_OWED", 20)
    known = Registry()
    known.put(owed("honest", operator="honest"))
    for number in range(100):
        known.put(owed(f"C{number}", operator="greedy"))
    assert ids(known) == ["honest", *(f"C{number}" for number in range(95, 100))]


def test_large_answers_that_were_taken_have_a_bound_in_bytes(monkeypatch):
    monkeypatch.setattr(module, "MAX_ENDED_BYTES", 100_000)
    known = Registry()
    for number in range(50):
        known.put(owed(f"C{number}", size=19_000, told=True))
    assert len(ids(known)) == 5


def test_verdicts_that_stay_provisional_are_forgotten_like_others(monkeypatch):
    """A gateway that never comes back says nothing that would end them."""
    monkeypatch.setattr(module, "MAX_OWED", 40)
    monkeypatch.setattr(module, "MAX_ENDED", 10)
    known = Registry()
    for number in range(50):
        doubt = msgspec.structs.replace(over(State.IN_DOUBT, provisional=True), id=f"C{number}", told=bool(number % 2))
        known.put(doubt)
    assert len(ids(known)) == 20
    assert [each.id for each in known.open_for("gw-1")] == ids(known)


def test_all_open_commands_of_a_bridge_have_a_bound_in_bytes(monkeypatch):
    monkeypatch.setattr(module, "MAX_OPEN_BYTES", 10_000)
    known = Registry()
    for number in range(50):
        each = record(f"C{number}", gateway=f"gw-{number}", operator=f"op-{number}", data_base64="x" * 1000)
        if known.no_room(each) is None:
            known.put(each)
    assert ids(known) == [f"C{number}" for number in range(5)]
    assert "10000 bytes already" in known.no_room(record("H1"))


class Unscanned(dict):
    """A dict that nobody may look through."""

    def _scanned(self):
        raise AssertionError("all records are looked through")

    __iter__ = values = items = keys = _scanned


def test_what_is_open_for_a_gateway_or_owed_to_an_operator_is_found_without_a_look_at_all_records():
    """B7: every submit and every hello scanned all."""
    known = Registry()
    for number in range(5):
        known.put(record(f"A{number}", gateway=f"gw-{number % 2}"))
    known.put(owed("B1", reply_to="you"))
    known._records = Unscanned(known._records)
    assert [each.id for each in known.open_for("gw-1")] == ["A1", "A3"]
    assert [each.id for each in known.owed_to("you")] == ["B1"]
    assert known.no_room(record("A9")) is None
    known.put(ended(record("A1"), State.SUCCEEDED, Answer(200), 500))
    assert [each.id for each in known.open_for("gw-1")] == ["A3"]


@pytest.mark.parametrize(("bound", "value"), [("MAX_OPEN_A_GATEWAY", 10), ("MAX_OPEN_BYTES_A_GATEWAY", 10 * 2000)])
async def test_an_operator_that_floods_a_gateway_leaves_half_of_its_room_to_others(monkeypatch, bound, value):
    """Isolation, and status 429 for the one that floods."""
    monkeypatch.setattr(module, bound, value)
    commands, shard = dispatcher()
    commands._routes.recall("lamp-1", "gw-1", 1)
    now_ms = time.time_ns() // 1_000_000
    asked = {"gateway": "", "durable": True, "accepted_ms": now_ms, "expires_ms": now_ms + 60_000, "data_base64": "x" * 1000}
    outcomes = []
    for number in range(20):
        commands.submit(record(f"F{number}", operator="greedy", **asked), outcomes.append)
        while not shard.changes.empty():
            commands._committed(outcomes.append, "00", shard.changes.get_nowait().record)
    assert outcomes[:5] == [ACCEPTED] * 5
    assert {each.condition for each in outcomes[5:]} == {RESOURCE_LIMIT}
    assert "too many of greedy commands wait already for gateway gw-1" in outcomes[-1].description
    commands.submit(record("H1", operator="honest", **asked), outcomes.append)
    assert shard.changes.get_nowait().record.id == "H1"
    commands.close()


async def test_a_command_with_a_provisional_verdict_keeps_no_timer():
    commands, _ = dispatcher()
    commands._take(record(expires_ms=time.time_ns() // 1_000_000 + 60_000))
    assert list(commands._courses) == ["C1"]
    commands._take(over(State.IN_DOUBT, provisional=True))
    assert not commands._courses
    commands.close()
