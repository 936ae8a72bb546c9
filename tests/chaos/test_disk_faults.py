"""C9 to C11: a disk that fails to sync, is full, or stalls. Nothing that was acknowledged is lost, nothing is made up."""

import asyncio
import re
import threading

import pytest

from chaos.books import Found
from chaos.judging import LOCK, judged
from chaos.workload import Life, answered, settings
from fogline.commands.command import CommandState
from fogline.errors import Misconfigured, SlowDown, Unreachable
from fogline.events.event import Lane, Receipt
from fogline_edge.outbox import startup
from fogline_edge.outbox.outbox import Outbox
from fogline_lab.amqp import within
from fogline_lab.apsw_connection import ApswConnection
from fogline_lab.disk import Disk, DiskOperation, disk_full, sync_failed
from fogline_lab.events import make_arrival, make_noise

LOG = "outbox.db-wal"
ROUNDS = 100


async def sound(life: Life, folder, since: int, every: int = 1) -> int:
    """Nothing is lost in any image, or one in so many, of a power cut after so many steps; how many there were."""
    images = 0
    async for image, found in judged(life.disk.record, folder, since=since, every=every):
        images += 1
        assert found == Found(), f"cut after step {image.cut}, {image.how}"
    return images


class FailingSync:
    """The first sync of the log fails; with `lasting`, so does every one after it, of any file."""

    def __init__(self, *, lasting: bool) -> None:
        self._lasting = lasting
        self.failed = 0

    def __call__(self, kind: DiskOperation, file: str) -> None:
        if kind is DiskOperation.SYNC and (self._lasting if self.failed else file == LOG):
            self.failed += 1
            raise sync_failed()


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "from then on"])
@pytest.mark.fault("C9")
async def test_a_failed_sync_is_fatal_and_a_restart_finds_all_that_was_acknowledged(
    folder, memory, monkeypatch, lasting, thorough
):
    life = Life(Disk(folder / LOCK), folder)
    await life.put(9)
    await life.checkpoint()
    await life.put(1)
    broken_at = len(life.disk.record)
    life.disk.before = FailingSync(lasting=lasting)
    recognised = [n for n in range(15, 25) if n % 3 != 1]
    unsure = [life.send(n) for n in recognised[:-2]]  # pages of which the log has no former version
    assert "input/output error" in await within(life.outbox.failed, "the outbox goes on")
    after = [life.send(n) for n in recognised[-2:]]
    with pytest.raises(Misconfigured):
        await life.outbox.streams.pending()
    await life.outbox.close()
    assert not any(each.done() for each in (*unsure, *after)), "acknowledged after a sync had failed"
    life.disk.before = lambda _kind, _file: None
    with monkeypatch.context() as recorded:
        recorded.setattr(startup, "write_again", life.disk.write_again)
        life.start()
    for n in recognised:
        await within(life.send(n, again=True), "the resend is not acknowledged")
    await life.outbox.close()
    assert await sound(life, memory, broken_at, 1 if thorough else 4) > (50 if thorough else 12)


class Checkpointing(ApswConnection):
    """Copies the log into the file much more often."""

    def execute(self, sql, parameters=()):
        return super().execute(re.sub(r"(wal_autocheckpoint) = \d+", r"\1 = 6", sql), parameters)


@pytest.mark.slow
@pytest.mark.fault("C9")
async def test_a_failed_sync_of_the_file_itself_loses_nothing_since_the_log_has_it(folder, memory, thorough):
    disk = Disk(folder / LOCK)
    life = Life(disk, folder, lambda path: Checkpointing.open(path, disk.name))
    failed = 0

    def before(kind, file):
        nonlocal failed
        if kind is DiskOperation.SYNC and file == "outbox.db" and failed < 2:
            failed += 1
            raise sync_failed()

    disk.before = before
    since = len(disk.record)
    for _ in range(6):
        await life.put(3)
    await life.outbox.close()
    assert failed == 2
    await sound(life, memory, since, 1 if thorough else 4)


class Room:
    """A disk that may be full: then it says so to every write of the database."""

    def __init__(self) -> None:
        self.full = False
        self.refused = threading.Event()

    def __call__(self, kind: DiskOperation, _file: str) -> None:
        if self.full and kind is DiskOperation.WRITE:
            self.refused.set()
            raise disk_full()


@pytest.mark.fault("C10")
async def test_a_full_disk_stops_acknowledgements_and_heals_by_itself_each_time(folder, memory):
    room = Room()
    life = Life(Disk(folder / LOCK), folder, statement_s=0.01)
    life.disk.before = room
    for _ in range(ROUNDS):
        await life.put(2)
        room.full = True
        room.refused.clear()
        waiting = [life.send() for _ in range(2)]
        assert await asyncio.to_thread(room.refused.wait, 60)
        await life.settle(leave=1)
        assert not any(each.done() for each in waiting)
        room.full = False
        await within(asyncio.gather(*waiting), "it does not heal")
    assert not life.outbox.failed.done()
    await life.outbox.close()
    await sound(life, memory, len(life.disk.record) - 1)


async def put_when_there_is_room(life: Life) -> None:
    """As an adapter does it."""
    while True:
        try:
            return await life.put(1)
        except SlowDown:
            room = asyncio.Event()
            life.outbox.port.when_room(room.set)
            await within(room.wait(), "it does not heal")


async def test_value_kept_twice_during_a_full_disk_has_its_last_version(folder):
    room = Room()
    life = Life(Disk(folder / LOCK), folder)
    await life.put(6)
    life.disk.before, room.full = room, True
    first = asyncio.create_task(life.keep("session", b"first"))
    assert await asyncio.to_thread(room.refused.wait, 60)
    room.full = False
    second = asyncio.create_task(life.keep("session", b"second"))
    await life.outbox.streams.pending()
    await life.settle(leave=0)
    await within(asyncio.gather(first, second), "it does not heal")
    await life.restart()
    assert life.outbox.port.kept("session") == {"session": b"second"}
    await life.outbox.close()


@pytest.mark.fault("C10")
async def test_writes_of_the_gateway_itself_wait_for_room_too(folder):
    room = Room()
    life = Life(Disk(folder / LOCK), folder, statement_s=0.01)
    await life.put(1)
    life.disk.before = room
    room.full = True
    await life.settle(leave=0)
    assert await asyncio.to_thread(room.refused.wait, 60), "it does not write what is settled"
    room.full = False
    await put_when_there_is_room(life)
    room.full = True
    with pytest.raises(Unreachable):
        await life.quarantine()
    room.full = False
    await life.quarantine()
    await life.outbox.close()


@pytest.mark.fault("C10")
async def test_a_start_on_a_full_disk_says_so_and_succeeds_when_there_is_room(folder):
    room = Room()
    life = Life(Disk(folder / LOCK), folder)
    await life.put(3)
    await life.outbox.close()
    room.full, life.disk.before = True, room
    with pytest.raises(Misconfigured, match="free space"):
        life.start()
    room.full = False
    life.start()
    await life.put(1)
    await life.outbox.close()


PAYLOAD = make_noise(100_000)


async def fill(outbox: Outbox, acknowledged: list[Receipt]) -> None:
    """Put until the outbox takes no more; the last are acknowledged when there is room again."""
    done = asyncio.Event()
    while True:
        try:
            outbox.port.put(make_arrival(data=PAYLOAD), acknowledged.append)
        except SlowDown:
            return
        done.clear()
        outbox.port.act(lambda *_: None, lambda _: done.set(), urgent=True)
        await within(done.wait(), "not even an act is done")


@pytest.mark.fault("C10")
async def test_a_file_at_its_bound_keeps_room_for_replies_and_commands_and_heals_each_time(folder):
    outbox = Outbox.open(settings(folder, max_bytes=1_000_000))
    acknowledged: list[Receipt] = []
    for turn in range(ROUNDS):
        await fill(outbox, acknowledged)
        assert await answered(outbox, f"C{turn}") == (Receipt.STORED, CommandState.SUCCEEDED)
        room = asyncio.Event()
        outbox.port.when_room(room.set)
        for stream in await outbox.streams.pending():
            outbox.streams.settle(stream.stream, stream.head)
        await within(room.wait(), "no room came")
    await outbox.close()
    outbox = Outbox.open(settings(folder))
    counts = {stream.lane: stream.counts for stream in await outbox.streams.pending()}
    await outbox.close()
    assert (counts[Lane.TELEMETRY].stored, counts[Lane.REPLY].stored) == (len(acknowledged), ROUNDS)
    assert (folder / "outbox.db").stat().st_size <= 1_000_000


@pytest.mark.fault("C11")
async def test_a_sync_that_stalls_holds_up_acknowledgements_and_nothing_else(folder, memory):
    life = Life(Disk(folder / LOCK), folder)
    await life.put(3)
    stalled, gate = threading.Event(), threading.Event()

    def before(kind, _file):
        if kind is DiskOperation.SYNC:
            stalled.set()
            gate.wait()

    life.disk.before = before
    try:
        waiting = [life.send() for _ in range(3)]
        assert await asyncio.to_thread(stalled.wait, 60)
        waiting += [life.send() for _ in range(3)]
        ticks = [await asyncio.sleep(0.001, n) for n in range(100)]
        assert (len(ticks), any(each.done() for each in waiting)) == (100, False)
    finally:
        gate.set()
    assert set(await within(asyncio.gather(*waiting), "not acknowledged")) == {Receipt.STORED}
    await life.outbox.close()
    await sound(life, memory, len(life.disk.record) - 1)
