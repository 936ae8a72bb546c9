"""A model of the change of the number of shards: all interleavings of bridges, the command, and kills of each.

One stream belongs to shard 0 before the change and to shard 1 after it. Bridges of the former number and of the new one run at
the same time, begin at any moment, and take their shards again after each error. A gateway sends the stream's next event to
any of them. The steps are those that Kafka makes atomic: a fence, a read of committed records, a commit.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import pytest

EVENTS = 3
"""Events of the stream that the gateway sends."""
TAKES = 2
"""Times that each bridge takes its shard; the command can be killed as often less one."""


@dataclass(frozen=True)
class Rules:
    """The steps of the protocol that can be left out, to see that each is needed."""

    checks_after_fence: bool = True  # a bridge reads the layout after it has fenced the former owner
    announces_first: bool = True  # the command writes the layout before it fences the owners
    fences: bool = True  # the command fences the owners before it reads their marks
    waits_for_end: bool = True  # bridges of the new number serve only after the state has moved
    moves_whole: bool = True  # what is moved is written to the new shard and deleted from the old one in one transaction


class Session(NamedTuple):
    """What a process has done since it began: `step`, its epoch of each transactional id, the mark that it has read."""

    step: str = "off"
    epoch: int = 0
    mark: int = 0
    left: int = TAKES


class World(NamedTuple):
    """Kafka, the processes, and what the gateway knows."""

    layout: str = "old"  # then "moving", "new"
    epochs: tuple[int, int] = (0, 0)  # of the transactional ids of the two shards
    records: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())  # sequences in each partition
    entries: tuple[int | None, int | None] = (0, None)  # the stream's mark in each shard's checkpoint, as of `position`
    position: int = 0  # records of partition 0 that its entry contains
    old: Session = Session()  # a bridge with the former number: it owns shard 0
    new: Session = Session()  # a bridge with the new number: it owns shard 1
    command: Session = Session()
    settled: int = 0


def steps(world: World, rules: Rules) -> Iterator[World]:
    """Yield every world that can follow."""
    yield from _bridge(world, rules, shard=0)
    yield from _bridge(world, rules, shard=1)
    yield from _command(world, rules)


def _bridge(world: World, rules: Rules, shard: int) -> Iterator[World]:  # noqa: C901 - its steps, one after another
    me, name = (world.old, "old") if shard == 0 else (world.new, "new")
    serves = {"old": ("old",), "new": ("new",) if rules.waits_for_end else ("moving", "new")}[name]

    def become(**changes: object) -> World:
        return world._replace(**{name: me._replace(**changes)})

    if me.step == "off" and me.left and (world.layout in serves or me.left < TAKES):  # at its start it looks, too
        yield become(step="begun", left=me.left - 1)
    if me.step == "begun":
        yield _fenced(become(step="fenced", epoch=world.epochs[shard] + 1), shard)
    if me.step == "fenced":
        if not rules.checks_after_fence or world.layout in serves:
            yield become(step="checked")
        else:
            yield become(step="off", left=0)  # it ends for good: its number of shards is another one
    if me.step == "checked":
        yield become(step="serving", mark=_mark(world, shard))
    if me.step == "serving":
        if me.epoch != world.epochs[shard]:
            yield become(step="off")
        elif me.mark == world.settled < EVENTS:  # the gateway sends what is not settled; a bridge takes what its mark allows
            sequence = me.mark + 1
            records = _with(world.records, shard, (*world.records[shard], sequence))
            landed = become(mark=sequence)._replace(records=records)
            yield landed  # and the settlement is lost
            yield landed._replace(settled=sequence)
        elif me.mark > world.settled:  # a retransmission: it is accepted, and nothing is written
            yield world._replace(settled=world.settled + 1)
        yield become(step="off")  # it is killed


def _command(world: World, rules: Rules) -> Iterator[World]:  # noqa: C901 - the steps of the command, one after another
    me, announced = world.command, world.layout != "old"

    def become(**changes: object) -> World:
        return world._replace(command=me._replace(**changes))

    if me.step != "off":
        yield become(step="off")  # it is killed
    if me.step == "off" and me.left and world.layout != "new":
        yield become(step="begun", left=me.left - 1)
    if me.step == "begun":
        world = become(step="announced")
        yield world._replace(layout="moving") if rules.announces_first and not announced else world
    if me.step == "announced":
        fenced = become(step="fenced")
        yield _fenced(fenced, 0) if rules.fences else fenced
    if me.step == "fenced":
        yield become(step="read", mark=_mark(world, 0), epoch=len(world.records[0]))
    if me.step == "read":  # the checkpoint of the old shard, up to what was read
        entry = me.mark or world.entries[0]  # a stream that was moved before a kill has no entry any more
        yield become(step="saved")._replace(entries=(entry, world.entries[1]), position=me.epoch)
    if me.step == "saved":
        if world.entries[0] is None:
            yield become(step="moved")
        elif rules.moves_whole:
            yield become(step="moved")._replace(entries=(None, world.entries[0]))
        else:
            yield become(step="half")._replace(entries=(None, world.entries[1]))
    if me.step == "half":
        yield become(step="moved")._replace(entries=(None, me.mark))
    if me.step == "moved":
        yield become(step="off", left=0)._replace(layout="new")


def _mark(world: World, shard: int) -> int:
    """Return the mark that a reader of a shard finds: its entry, and the records after its position."""
    later = world.records[shard][world.position if shard == 0 else 0 :]
    return max((*later, world.entries[shard] or 0), default=0)


def _fenced(world: World, shard: int) -> World:
    return world._replace(epochs=_with(world.epochs, shard, world.epochs[shard] + 1))


def _with(pair: tuple, index: int, value: object) -> tuple:
    return (value, pair[1]) if index == 0 else (pair[0], value)


def _wrong(world: World) -> str:
    """Return what must never be: sequences in Kafka that are lost, double or out of order, or two owners of the stream."""
    before, after = world.records
    if (*before, *after) != tuple(range(1, len(before) + len(after) + 1)):
        return f"lost, double or out of order: {before} in the old partition, {after} in the new one"
    if world.settled > len(before) + len(after):
        return "settled, and not in Kafka"
    owners = [
        name
        for name, each, epoch in (("old", world.old, world.epochs[0]), ("new", world.new, world.epochs[1]))
        if each.step == "serving" and each.epoch == epoch
    ]
    return f"two owners of one stream: {owners}" if len(owners) > 1 else ""


def explore(rules: Rules) -> tuple[int, str, set[World]]:
    """Visit every world. Return their number, the first wrong one as text, and those after which nothing can follow."""
    first = World()
    known, waiting, ends = {first}, deque([first]), set[World]()
    while waiting:
        world = waiting.popleft()
        if why := _wrong(world):
            return len(known), why, ends
        following = list(steps(world, rules))
        if not following:
            ends.add(world)
        for each in following:
            if each not in known:
                known.add(each)
                waiting.append(each)
    return len(known), "", ends


def test_no_interleaving_loses_doubles_or_disorders_an_event_and_a_stream_has_one_owner():
    worlds, why, ends = explore(Rules())
    assert why == ""
    assert worlds > 1000
    # The change can end with the stream on both partitions, its tail landed by the new owner.
    assert any(each.layout == "new" and each.settled == EVENTS and all(each.records) for each in ends)


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param(Rules(checks_after_fence=False), id="no look at the layout after the fence"),
        pytest.param(Rules(announces_first=False), id="fence before the layout"),
        pytest.param(Rules(fences=False), id="no fence"),
        pytest.param(Rules(waits_for_end=False), id="service during the move"),
        pytest.param(Rules(moves_whole=False), id="a move of two transactions"),
    ],
)
def test_each_step_is_needed(rules):
    """The model finds the fault of a protocol without the step."""
    _, why, _ = explore(rules)
    assert why
