"""The journal of commands: each command ends once, whoever ends it."""

import asyncio

import pytest

from fogline.commands.command import CommandState, Reply, Status
from fogline.events.event import Lane
from fogline_edge.downlink import journal
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.settings import EdgeSettings
from fogline_lab.commands import make_command

ENDS = [CommandState.SUCCEEDED, CommandState.FAILED, CommandState.EXPIRED, CommandState.CANCELLED, CommandState.IN_DOUBT]


async def act(outbox, run):
    """Let the writer run this in a transaction. Returns its result after the commit."""
    done = asyncio.get_running_loop().create_future()
    outbox.port.act(run, done.set_result, urgent=True)
    return await done


@pytest.mark.parametrize("first", ENDS)
async def test_a_command_that_is_over_does_not_end_again(folder, first):
    outbox = Outbox.open(EdgeSettings(tenant="acme", gateway="gw-1", data=str(folder)))
    command = make_command(id="C1")
    try:
        await act(outbox, lambda ingest, group: journal.store(ingest, group, command, CommandState.SENDING))
        ends = [first, *(each for each in ENDS if each is not first)]
        ended = [
            await act(
                outbox, lambda ingest, group, end=end: journal.finish(ingest, group, command, end, Reply(Status.NO_ANSWER))
            )
            for end in ends
        ]
        (reports,) = {each.head for each in await outbox.streams.pending() if each.lane is Lane.REPLY}
    finally:
        await outbox.close()
    late = first is CommandState.IN_DOUBT  # the device's answer, which comes late, may still say how it ended
    assert [end for end, changed in zip(ends, ended, strict=True) if changed] == [first, *[CommandState.SUCCEEDED] * late]
    assert reports == 1 + late
