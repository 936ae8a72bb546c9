"""The moment at which a group is handed to the writer."""

import asyncio

import pytest

from fogline_edge.machine.boot import SYSTEM
from fogline_edge.outbox.gathering import UNDELAYED_ITEMS, Gathering
from fogline_edge.outbox.writer.ingest import Act
from fogline_edge.settings import OutboxSettings
from fogline_lab.amqp import within
from fogline_lab.events import make_arrival

NEVER_MS = 1000


class Groups:
    """A writer that takes groups and commits none until it is told."""

    def __init__(self, **given):
        self.sizes = []
        self.came = asyncio.Event()
        self.gathering = Gathering(OutboxSettings(**given), SYSTEM, self.take)

    def take(self, group):
        self.sizes.append(len(group))
        self.came.set()

    def put(self, count=1):
        for n in range(count):
            self.gathering.put(make_arrival(n), lambda _: None)

    async def next(self):
        await within(self.came.wait(), "no group was handed over")
        self.came.clear()


async def test_a_full_group_does_not_wait():
    groups = Groups(group_commit_ms=NEVER_MS, group_commit_events=5)
    groups.put(12)
    assert groups.sizes == [5, 5]


async def test_arrivals_during_a_commit_are_committed_next():
    groups = Groups(group_commit_ms=0)
    groups.put()
    await groups.next()
    groups.put(7)
    await asyncio.sleep(0)
    assert groups.sizes == [1]
    groups.gathering.committed(1)
    assert groups.sizes == [1, 7]


async def test_several_items_wait_only_while_others_come():
    groups = Groups(group_commit_ms=NEVER_MS)
    groups.put(3)
    timer = groups.gathering._timer
    assert timer.when() - asyncio.get_running_loop().time() < NEVER_MS / 2000, "it waits to the end"
    await groups.next()
    assert groups.sizes == [3]


async def test_a_lone_item_that_waited_in_vain_lets_the_next_go_at_once():
    groups = Groups(group_commit_ms=20)
    for _ in range(1 + UNDELAYED_ITEMS + 1):
        groups.put()
        await groups.next()
        groups.gathering.committed(1)
    assert groups.sizes == [1] * (UNDELAYED_ITEMS + 2)


async def test_an_urgent_act_takes_the_others_with_it_at_once():
    groups = Groups(group_commit_ms=NEVER_MS)
    groups.put()
    groups.gathering.act(Act(lambda *_: None, lambda _: None), urgent=True)
    await groups.next()
    assert groups.sizes == [2]


@pytest.mark.parametrize("busy", [False, True])
async def test_nothing_is_left_behind_at_the_end(busy):
    groups = Groups(group_commit_ms=NEVER_MS, group_commit_events=3)
    groups.put(4 if busy else 1)
    groups.gathering.submit()
    assert sum(groups.sizes) == (4 if busy else 1)
