"""Roll-outs of a process: their number, those of former runs, and files that cannot be read."""

import asyncio
from types import SimpleNamespace

import pytest

from fogline_cloud.api.problems import Problem
from fogline_cloud.commands.client.command_group import GroupCommand, GroupFile, GroupVerdict
from fogline_cloud.console.rollouts import rollout_desk
from fogline_cloud.console.rollouts.rollout_desk import MAX_KEPT, MAX_RUNNING, RolloutDesk
from fogline_lab.waiting import until


class SilentSender:
    """Sends commands that nobody answers."""

    def __init__(self, *_):
        pass

    async def request(self, _):
        await asyncio.Future()


def command(number: int, **more) -> GroupCommand:
    usual = {"tenant": "t", "devices": ["a", "b"], "name": "switch", "ttl_s": 60.0, "rate_s": 100.0, "created_ms": number}
    return GroupCommand(id=f"{number:016x}", created_by="alice", **{**usual, **more})


@pytest.fixture
def context():
    return SimpleNamespace(stopping=False)


async def test_so_many_roll_outs_run_and_are_kept(folder, context, monkeypatch):
    monkeypatch.setattr(rollout_desk, "UserSender", SilentSender)
    for number in range(MAX_KEPT + 5):
        GroupFile.create(folder, command(number))
    (folder / "broken.jsonl").write_text("x\n")
    desk = RolloutDesk(context, str(folder))
    assert len([*desk.all()]) in (MAX_KEPT - 1, MAX_KEPT)
    begun = [desk.begin(command(1000 + number), "Basic x") for number in range(MAX_RUNNING)]
    assert desk.begin(begun[0].command, "Basic x") is begun[0]
    with pytest.raises(Problem, match="roll-outs run already") as problem:
        desk.begin(command(2000), "Basic x")
    assert problem.value.status == 503
    assert not (folder / f"{2000:016x}.jsonl").exists()
    assert [each.command.id for each in desk.all()][:MAX_RUNNING] == [each.command.id for each in reversed(begun)]
    assert len([*desk.all()]) <= MAX_KEPT + MAX_RUNNING
    assert {each.state for each in begun} == {"RUNNING"}
    await asyncio.sleep(0)
    desk.close()
    await until(lambda: {each.state for each in begun} == {"PAUSED"}, "the roll-outs do not end with the process")


def test_state_of_a_roll_out_of_a_former_run_is_that_of_its_file(folder, context):
    for number, states in enumerate([[], ["FAILED"], ["SUCCEEDED", "FAILED"], ["SUCCEEDED"]]):
        file = GroupFile.create(folder, command(number, stop_share=0.5))
        for device, state in zip(("a", "b"), states, strict=False):
            file.note(GroupVerdict(device=device, state=state))
    desk = RolloutDesk(context, str(folder))
    assert [desk.find(f"{number:016x}").state for number in range(4)] == ["PAUSED", "FAILED", "DONE", "PAUSED"]
    assert desk.find("../../etc/passwd") is None


def test_without_a_folder_there_are_none(context):
    desk = RolloutDesk(context, None)
    assert (desk.is_open, [*desk.all()]) == (False, [])
