"""The run of a group: the share of failures, and what a second run leaves out. tests/e2e/test_command_groups.py has devices."""

import asyncio
import json

import pytest

from fogline.commands.command import CommandState
from fogline.errors import Misconfigured, Unreachable
from fogline_cloud.cli.main import main
from fogline_cloud.commands.client import command_group
from fogline_cloud.commands.client.command_group import GroupCommand, GroupFile, GroupRun, GroupVerdict
from fogline_cloud.commands.client.verdict import CancelVerdict, CommandVerdict
from fogline_lab.amqp import within

NAMES = [f"lamp-{number}" for number in range(20)]


class ScriptedOperator:
    """An operator whose devices answer as a test says. `cancelled` has the message ids of the requests to cancel."""

    def __init__(self, answer=lambda _: 200):
        self.answer = answer
        self.asked: list[str] = []
        self.cancelled: list[str] = []
        self.sent = asyncio.Event()
        self.refusal: CancelVerdict | None = None

    async def request(self, ask):
        self.asked.append(ask.message_id)
        self.sent.set()
        status = self.answer(ask.device)
        if status is None:
            await asyncio.Future()
        return CommandVerdict(CommandState.SUCCEEDED if status == 200 else CommandState.FAILED, status)

    async def cancel(self, *, message_id):
        self.cancelled.append(message_id)
        if self.refusal is not None:
            return self.refusal
        if message_id not in self.asked:
            return CancelVerdict(None, 404, "not known")
        return CancelVerdict(CommandState.CANCELLED, 200)


def group_of(folder, **fields) -> GroupFile:
    given = {
        "id": "g1",
        "tenant": "acme",
        "devices": NAMES,
        "name": "switch",
        "ttl_s": 60.0,
        "rate_s": 1e6,
        "created_ms": 0,
        **fields,
    }
    return GroupFile.create(folder, GroupCommand(**given))


async def test_second_run_requests_only_the_rest_with_the_same_ids(folder):
    first = ScriptedOperator(lambda name: 200 if name < "lamp-15" else None)
    group = group_of(folder)
    running = asyncio.create_task(GroupRun(group, first).run())
    while len(first.asked) < 20:
        first.sent.clear()
        await within(first.sent.wait(), "it does not send")
    running.cancel()
    await asyncio.wait({running})
    again, second = GroupFile.read(folder, "g1"), ScriptedOperator()
    left = again.left
    await within(GroupRun(again, second).run(), "it does not end")
    assert second.asked == [f"group/g1/{name}" for name in left]
    assert 0 < len(left) < 20
    assert set(second.asked) <= set(first.asked)
    assert (dict(GroupFile.read(folder, "g1").states), again.left) == ({"SUCCEEDED": 20}, [])


async def test_at_the_share_of_failures_the_rest_is_cancelled_or_not_sent(folder):
    operator = ScriptedOperator(lambda name: None if name in ("lamp-0", "lamp-1") else 500)
    group = group_of(folder, stop_share=0.1, rate_s=1000.0)
    await within(GroupRun(group, operator).run(), "it does not stop")
    assert sorted(operator.cancelled) == ["group/g1/lamp-0", "group/g1/lamp-1"]
    assert (group.states["CANCELLED"], group.states["FAILED"]) == (2, len(operator.asked) - 2)
    assert 2 <= group.states["FAILED"] < 18
    before = len(operator.asked)
    operator.answer = lambda _: 200
    await within(GroupRun(group, operator).run(), "it does not go on")
    assert (group.left, len(operator.asked) > before) == ([], True)


async def test_a_cancelled_group_leaves_nothing_to_send(folder):
    operator = ScriptedOperator()
    group = group_of(folder)
    await GroupRun(group, operator).cancel(group.left)
    assert (dict(group.states), group.left) == ({"NOT_SENT": 20}, [])
    await within(GroupRun(group, operator).run(), "it does not end")
    assert operator.asked == []


async def test_refused_cancellation_has_its_reason(folder):
    operator = ScriptedOperator()
    operator.refusal = CancelVerdict(None, 403, "alice may not cancel it")
    group = group_of(folder)
    with pytest.raises(Unreachable, match="alice may not cancel it"):
        await GroupRun(group, operator).cancel(group.left)


def test_a_file_that_a_crash_has_cut_off_is_read_up_to_there(folder):
    group = group_of(folder)
    path = folder / "g1.jsonl"
    with path.open("ab") as file:
        file.write(b'{"device":"lamp-1","state":"SUCCEEDED"}\n{"device":"lamp-2","sta')
    again = GroupFile.read(folder, "g1")
    assert (list(again.verdicts), again.command) == (["lamp-1"], group.command)
    assert path.read_bytes().endswith(b'"sta'), "another process may be writing the line just now"
    again.note(GroupVerdict(device="lamp-3", state="FAILED"))
    assert list(GroupFile.read(folder, "g1").verdicts) == ["lamp-1", "lamp-3"]
    with pytest.raises(Misconfigured, match="there is no group"):
        GroupFile.read(folder, "g2")
    (folder / "g3.jsonl").write_text("x\n")
    with pytest.raises(Misconfigured, match="not the file of a group"):
        GroupFile.read(folder, "g3")


@pytest.mark.parametrize(("age_days", "may"), [(6.9, True), (7.1, False)])
def test_a_group_that_bridges_may_have_forgotten_is_not_resumed(folder, age_days, may):
    """A copy of a command that ran would be a new command there."""
    now_ms = 100 * 86_400_000
    group = group_of(folder, created_ms=now_ms - int(age_days * 86_400_000))
    if may:
        group.require_recent(now_ms)
    else:
        with pytest.raises(Misconfigured, match="group g1 is more than 7 days old"):
            group.require_recent(now_ms)


def test_the_groups_of_this_machine_are_listed_the_newest_last(folder, capsys):
    for name, created_ms in (("g2", 1_790_000_000_000), ("g1", 1_780_000_000_000)):
        group = group_of(folder, id=name, created_ms=created_ms)
        group.note(GroupVerdict(device="lamp-0", state="SUCCEEDED"))
    (folder / "broken.jsonl").write_text("x\n")

    assert main(["command", "group", "list", "--groups", str(folder), "--json"]) == 0

    found = capsys.readouterr()
    assert [(each["id"], each["devices"], each["left"], each["states"]) for each in json.loads(found.out)] == [
        ("g1", 20, 19, {"SUCCEEDED": 1}),
        ("g2", 20, 19, {"SUCCEEDED": 1}),
    ]
    assert "broken.jsonl: this is not the file of a group" in found.err
    assert main(["command", "group", "list", "--groups", str(folder), "--limit", "1"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["ID", "g2"]
    assert main(["command", "group", "list", "--groups", str(folder / "none")]) == 0
    assert "there is no group in" in capsys.readouterr().err


def test_a_roll_out_of_the_operators_page_does_not_go_on_from_the_command_line(folder, capsys):
    """There its commands would have other ids, so that devices could get them twice."""
    group_of(folder, created_by="client acme/alice (password)")
    for word in ("resume", "cancel"):
        assert main(["command", "group", word, "g1", "--groups", str(folder)]) == 2
        assert "operator's page" in capsys.readouterr().err


async def test_command_that_no_bridge_has_taken_is_not_sent_after_its_group_was_stopped(folder):
    class Retrying(ScriptedOperator):
        """An operator who sends again what no bridge could take: also while it waits for the answer to a request to cancel."""

        tried_to_cancel = asyncio.Event()

        async def request(self, ask):
            self.sent.set()
            await self.tried_to_cancel.wait()
            return await super().request(ask)

        async def cancel(self, *, message_id):
            found = await super().cancel(message_id=message_id)
            self.tried_to_cancel.set()
            for _ in range(10):
                await asyncio.sleep(0)
            return found

    operator, group = Retrying(), group_of(folder, devices=["lamp-1"])
    run = GroupRun(group, operator)
    running = asyncio.create_task(run.run())
    await within(operator.sent.wait(), "it does not send")
    run.stop()
    await within(running, "it does not stop")
    assert (operator.asked, dict(group.states)) == ([], {"NOT_SENT": 1})


async def test_group_that_is_stopped_does_not_wait_for_the_commands_under_way(folder, monkeypatch):
    monkeypatch.setattr(command_group, "MAX_IN_FLIGHT", 3)
    operator, group = ScriptedOperator(lambda _: None), group_of(folder)
    run = GroupRun(group, operator)
    running = asyncio.create_task(run.run())
    while len(operator.asked) < 3:
        operator.sent.clear()
        await within(operator.sent.wait(), "it does not send")
    for _ in range(20):
        await asyncio.sleep(0)
    run.stop()
    await within(running, "it does not stop")
    assert (len(operator.asked), dict(group.states), len(group.left)) == (3, {"CANCELLED": 3}, 17)
