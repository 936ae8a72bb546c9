"""A damaged file: the gateway starts, what can be read goes on, what cannot is told."""

import asyncio
import sqlite3
from itertools import count
from pathlib import Path
from random import Random

import pytest

from edge.outbox.damaged import (
    PAGE,
    Sound,
    arrival,
    command,
    copy,
    end_badly,
    everything,
    flip,
    healthy_but,
    judge,
    make_sound,
    mark_damaged,
    readable,
    start,
    stream_row,
)
from fogline.commands.command import Deadline
from fogline.errors import Misconfigured
from fogline.events.codec import decode_event
from fogline.events.event import Lane
from fogline.events.gap import GapReason
from fogline_edge.downlink import journal
from fogline_edge.downlink.command_task import IN_DOUBT, CommandTask
from fogline_edge.machine.boot import beacon
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.outbox.rows.stored_body import unpack_body
from fogline_edge.outbox.salvage import salvage as module
from fogline_edge.outbox.salvage.carving import Carving
from fogline_lab.commands import make_command
from fogline_lab.events import make_arrival
from fogline_lab.gateway.outbox_use import put, settings


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Sound:
    folder = tmp_path_factory.mktemp("sound")
    return asyncio.run(make_sound(folder))


# --- the copies: 233 in all


@pytest.mark.parametrize("ended", ["clean", "open"])
@pytest.mark.parametrize("flips", [1, 3, 40])
@pytest.mark.fault("C8")
async def test_flipped_bytes(sound, folder, flips, ended):
    for seed in range(13):
        random, at = Random(f"{flips} {seed} {ended}"), copy(sound.clean, folder, str(seed))
        if ended == "open":
            end_badly(at)
        pages = flip(at / "data" / "outbox.db", random, count=flips)
        before = readable(at / "data")
        judge(sound, before, await start(at), healthy_but(sound, pages), f"{flips} flips, seed {seed}, {ended}")


@pytest.mark.fault("C8")
async def test_flips_where_they_hurt_most(sound, folder):
    """The headers of pages and of cells, where one byte takes many rows with it."""
    size = (sound.clean / "outbox.db").stat().st_size
    for seed in range(40):
        random, at = Random(f"header {seed}"), copy(sound.clean, folder, str(seed))
        page = random.randrange(size // PAGE)
        end_badly(at)
        pages = flip(at / "data" / "outbox.db", random, begin=page * PAGE, end=page * PAGE + 100, count=random.choice((1, 5)))
        judge(sound, readable(at / "data"), await start(at), healthy_but(sound, pages), f"page {page + 1}, seed {seed}")


@pytest.mark.parametrize("mask", [1, 64])
@pytest.mark.fault("C8")
async def test_a_flipped_byte_in_the_row_of_a_stream_hides_no_event(sound, folder, mask):
    """Each byte of the row that holds name, head and settled of a stream, together with two unreadable events of the stream."""
    number, row = stream_row(sound)
    for place in row[:: 2 if mask == 1 else 6]:
        at = copy(sound.clean, folder, str(place))
        with sqlite3.connect(at / "data" / "outbox.db") as database:
            last = f"(SELECT max(place) FROM event WHERE stream = {number})"
            database.execute(f"UPDATE event SET body = zeroblob(9) WHERE place IN ({number} << 40 | 40, {last})")
        database.close()
        data = bytearray((at / "data" / "outbox.db").read_bytes())
        data[place] ^= mask
        (at / "data" / "outbox.db").write_bytes(data)
        mark_damaged(at)
        judge(sound, readable(at / "data"), await start(at), set(), f"byte {place - row.start} of the row")


@pytest.mark.parametrize("filling", [b"\0", b"\xff", None], ids=["zeros", "ones", "random"])
@pytest.mark.fault("C8")
async def test_a_page_that_is_overwritten(sound, folder, filling):
    size = (sound.clean / "outbox.db").stat().st_size
    for seed in range(12):
        random, at = Random(f"page {seed}"), copy(sound.clean, folder, str(seed))
        page = random.randrange(size // PAGE)
        data = bytearray((at / "data" / "outbox.db").read_bytes())
        data[page * PAGE : (page + 1) * PAGE] = filling * PAGE if filling else random.randbytes(PAGE)
        (at / "data" / "outbox.db").write_bytes(data)
        judge(sound, readable(at / "data"), await start(at), healthy_but(sound, {page + 1}), f"page {page + 1}, seed {seed}")


@pytest.mark.fault("C8")
async def test_a_file_that_is_cut_short(sound, folder):
    size = (sound.clean / "outbox.db").stat().st_size
    for step in range(30):
        at, length = copy(sound.clean, folder, str(step)), [0, 1, 15, 100, 4095, 4096][step] if step < 6 else size * step // 30
        with (at / "data" / "outbox.db").open("r+b") as file:
            file.truncate(length)
        gone = set(range(length // PAGE + 1, size // PAGE + 1))
        judge(sound, readable(at / "data"), await start(at), healthy_but(sound, gone), f"cut to {length}")


@pytest.mark.fault("C8")
async def test_a_header_of_garbage(sound, folder):
    for seed in range(8):
        at = copy(sound.clean, folder, str(seed))
        flip(at / "data" / "outbox.db", Random(seed), end=100, count=30)
        judge(sound, set(), await start(at), healthy_but(sound, {1}), f"seed {seed}")


@pytest.mark.fault("C8")
async def test_a_killed_gateway_with_a_damaged_file(sound, folder):
    for seed in range(15):
        at = copy(sound.killed, folder, str(seed))
        flip(at / "data" / "outbox.db", Random(seed), count=8)
        judge(sound, readable(at / "data"), await start(at), set(), f"seed {seed}")


@pytest.mark.fault("C8")
async def test_a_damaged_log(sound, folder):
    """Of its last commit nobody can say whether it was acknowledged; of all others it is told if they are gone."""
    for seed in range(25):
        at = copy(sound.killed, folder, str(seed))
        flip(at / "data" / "outbox.db-wal", Random(seed), count=1 + seed % 3)
        judge(sound, readable(at / "data"), await start(at), set(), f"seed {seed}", silent=sound.last_group)


@pytest.mark.fault("C8")
async def test_a_missing_log(sound, folder):
    at = copy(sound.killed, folder, "missing")
    (at / "data" / "outbox.db-wal").unlink()
    (at / "data" / "outbox.db-shm").unlink()
    before, after = readable(at / "data"), await start(at)
    judge(sound, before, after, set(), "no log")
    assert [gap.lost.first for gap in after.gaps][-1:] == [None]


# --- one by one


async def test_a_sound_file_is_left_alone(sound, folder):
    for ended, source in enumerate((sound.clean, sound.killed)):
        at = copy(source, folder, str(ended))
        after = await start(at)
        assert after.ids == sound.ids
        assert not list((at / "data").glob("*.damaged-*"))


async def test_everything_of_a_file_that_is_only_said_to_be_damaged_is_taken_over(sound, folder):
    at = copy(sound.killed, folder, "a")
    mark_damaged(at)
    outbox = Outbox.open(settings(at))
    after = await everything(outbox)
    assert sorted(after.ids.values()) == sorted(sound.ids.values())
    assert after.gaps == []
    assert {stream for stream, _ in after.ids} & {stream for stream, _ in sound.ids} == set()
    assert len(outbox.port.kept("mqtt/session/")) == 40
    entries = await outbox.read_journal(journal.open_entries)
    assert [(entry.command.id, entry.state) for entry in entries] == [("c-1", "SENDING"), ("c-2", "SENDING")]
    resend = arrival(1019)
    assert await put(outbox, make_again(resend)) == "duplicate"
    await outbox.close()
    rows = sqlite3.connect(at / "data" / "outbox.db").execute("SELECT body FROM event").fetchall()
    assert all(decode_event(unpack_body(body)).replayed for (body,) in rows)
    (aside,) = (each for each in (at / "data").glob("outbox.db.damaged-*") if not each.name.endswith("-wal"))
    assert aside.with_name(aside.name + "-wal").exists()
    assert aside.read_bytes() == (sound.killed / "outbox.db").read_bytes()


def make_again(resend):
    from msgspec.structs import replace

    return replace(resend, retransmission=replace(resend.retransmission, again=True))


async def test_gap_record_names_the_missing_sequences(sound, folder):
    at = copy(sound.clean, folder, "a")
    lost, page = next((event_id, page) for event_id, page in sound.pages.items())
    data = bytearray((at / "data" / "outbox.db").read_bytes())
    data[(page - 1) * PAGE : page * PAGE] = bytes(PAGE)
    (at / "data" / "outbox.db").write_bytes(data)
    end_badly(at)
    outbox = Outbox.open(settings(at))
    after = await everything(outbox)
    ((stream, sequence),) = (place for place, event_id in sound.ids.items() if event_id == lost)
    (gap,) = (each for each in after.gaps if each.lost.stream == stream and each.lost.first <= sequence <= each.lost.last)
    assert gap.reason is GapReason.DAMAGED
    assert f"of stream {stream} cannot be read" in gap.detail
    await outbox.close()


async def test_a_command_of_a_damaged_file_is_never_begun_again(sound, folder):
    at = copy(sound.killed, folder, "a")
    outbox = Outbox.open(settings(at))
    now = beacon()
    order = make_command(id="c-3", reply=False, deadline=Deadline(now.boot_id, now.boottime_ms + 10**6))
    await command(outbox, order, journal.CommandState.QUEUED)
    outbox.suspect("for the test")
    await outbox.close()
    outbox = Outbox.open(settings(at))
    entries = {entry.command.id: entry for entry in await outbox.read_journal(journal.open_entries)}
    assert CommandTask(entries["c-3"].command, entries["c-3"].state).resume(now) == IN_DOUBT
    await outbox.close()


async def test_an_event_whose_body_has_another_type_is_salvaged_at_the_next_start(sound, folder):
    """One flipped byte in the header of a row turns its BLOB into a number, and SQLite reads it without an error."""
    at, (stream, sequence) = copy(sound.clean, folder, "a"), next(iter(sound.ids))
    with sqlite3.connect(at / "data" / "outbox.db") as connection:
        number = connection.execute("SELECT number FROM stream WHERE stream = ?", (stream,)).fetchone()[0]
        connection.execute("UPDATE event SET body = 7 WHERE stream = ? AND sequence = ?", (number, sequence))
    connection.close()
    after = await start(at)
    assert set(sound.ids.values()) - set(after.ids.values()) == {sound.ids[stream, sequence]}
    assert [(gap.lost.stream, gap.lost.first, gap.lost.last) for gap in after.gaps] == [(stream, sequence, sequence)]


async def test_damage_that_is_met_while_the_gateway_runs_is_salvaged_at_the_next_start(sound, folder):
    at = copy(sound.clean, folder, "a")
    outbox = Outbox.open(settings(at))
    (before,) = (stream for stream in await outbox.streams.pending() if stream.lane is Lane.TELEMETRY)

    def fail(writer):
        writer.connection.execute("UPDATE stream SET number = 1 WHERE number <> 1")  # a number that is taken

    with pytest.raises(Misconfigured):
        await outbox._calls.call(fail)
    await outbox.close()
    assert (at / "data" / "lock").read_text().startswith("damaged")
    after = await start(at)
    assert before.stream not in {stream for stream, _ in after.ids}
    assert set(sound.ids.values()) <= set(after.ids.values())


async def test_a_salvage_that_fails_itself_leaves_an_empty_outbox_that_says_so(sound, folder, monkeypatch):
    def fail(self):
        raise ValueError("worse than thought")

    monkeypatch.setattr(Carving, "rows", fail)
    at = copy(sound.clean, folder, "a")
    (at / "data" / "outbox.db").write_bytes(b"garbage" * 1000)
    after = await start(at)
    (gap,) = after.gaps
    assert "nothing of it could be read" in gap.detail
    assert len(list((at / "data").glob("*.damaged-*"))) == 1


def cut_short(real, calls):
    """A function that is the real one, until the last of so many calls."""
    left = count(calls, -1)

    def call(*arguments, **named):
        if next(left) == 1:
            raise KeyboardInterrupt
        return real(*arguments, **named)

    return call


@pytest.mark.parametrize("step", ["replace", "unlink"])
@pytest.mark.fault("C8")
async def test_a_salvage_that_is_cut_short_is_gone_on_with(sound, folder, monkeypatch, step):
    """A power cut at each of its renames."""
    for cut in range(1, 5):
        at = copy(sound.killed, folder, f"{step}{cut}")
        mark_damaged(at)
        with monkeypatch.context() as patched:
            patched.setattr(Path, step, cut_short(getattr(Path, step), cut))
            with pytest.raises(KeyboardInterrupt):
                Outbox.open(settings(at))
        after = await start(at)
        assert set(sound.ids.values()) <= set(after.ids.values()), f"cut at {step} {cut}"


@pytest.mark.fault("C8")
async def test_five_damaged_files_are_kept(folder, monkeypatch):
    monkeypatch.setattr(module, "KEPT_ASIDE", 3)
    await Outbox.open(settings(folder)).close()
    for n in range(5):
        (folder / "data" / "outbox.db").write_bytes(b"garbage %d" % n * 1000)
        await Outbox.open(settings(folder)).close()
    kept = sorted((folder / "data").glob("outbox.db.damaged-*"))
    assert len(kept) == 3
    assert b"garbage 4" in kept[-1].read_bytes()[:20]


async def test_a_damaged_name_of_the_gateway_is_no_other_gateway(sound, folder):
    at = copy(sound.clean, folder, "a")
    with sqlite3.connect(at / "data" / "outbox.db") as database:
        database.execute("UPDATE meta SET value = 'acme/gw-9' WHERE key = 'gateway'")
    database.close()
    after = await start(at)
    assert set(sound.ids.values()) <= set(after.ids.values())


async def test_quarantined_rows_of_former_streams_stay_across_salvages(folder):
    """A salvage opens new streams: none of them may take the number of one of which rows are in quarantine."""
    for life in range(3):
        outbox = Outbox.open(settings(folder))
        for _ in range(2):
            await put(outbox, make_arrival(life))
        (stream,) = await outbox.streams.pending()
        assert await outbox.streams.quarantine(stream.stream, 2, "amqp:decode-error", f"life {life}")
        outbox.streams.settle(stream.stream, 2)
        outbox.suspect("for the test")
        await outbox.close()
    rows = sqlite3.connect(folder / "data" / "outbox.db").execute("SELECT description FROM quarantine ORDER BY stream")
    assert [description for (description,) in rows] == ["life 0", "life 1", "life 2"]
