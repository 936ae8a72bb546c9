"""Events that the bridge refused for good: their share of the file, and how a person takes them out of it."""

import asyncio
import re
import sqlite3

import pytest

from fogline.events.codec import decode_event
from fogline.events.event import Lane, Receipt
from fogline.events.gap import GAP_CONTENT_TYPE, decode_gap
from fogline_edge.cli import main
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.outbox.writer import quarantine as module
from fogline_lab.events import make_arrival
from fogline_lab.gateway.outbox_use import bodies, put, settings

LIMIT_S = 60.0


async def refuse(outbox: Outbox, arrival) -> tuple[str, int]:
    """OutboxStore an event, and have the bridge refuse it for good. Returns its place."""
    assert await put(outbox, arrival) is Receipt.STORED
    (stream,) = [each for each in await outbox.streams.pending() if each.lane is arrival.lane]
    assert await outbox.streams.quarantine(stream.stream, stream.head, "amqp:decode-error", "not readable")
    return stream.stream, stream.head


def aside(folder) -> list[bytes]:
    """The payloads in quarantine, the oldest first."""
    with sqlite3.connect(folder / "data" / "outbox.db") as connection:
        return [decode_event(body).data for (body,) in connection.execute("SELECT body FROM quarantine ORDER BY rowid")]


async def lost(outbox: Outbox) -> set[tuple[str, int]]:
    """The places that the gap records of the only lane name as deleted from the quarantine."""
    (stream,) = await outbox.streams.pending()
    gaps = [decode_gap(each.data).lost for each in await bodies(outbox, stream.stream) if each.content_type == GAP_CONTENT_TYPE]
    return {(gap.stream, sequence) for gap in gaps if gap is not None for sequence in range(gap.first, gap.last + 1)}


@pytest.mark.fault("C14")
async def test_refused_events_leave_room_for_ordinary_ones(folder):
    """G2: 26 bodies of 60 kB filled a 2 MB outbox for ever."""
    outbox = Outbox.open(settings(folder, max_bytes=2_000_000, group_commit_ms=0))
    places = [await refuse(outbox, make_arrival(n, data=b"%06d" % n * 10_000)) for n in range(30)]
    assert await put(outbox, make_arrival(data=bytes(600_000))) is Receipt.STORED
    assert [each[:6] for each in aside(folder)] == [b"000028", b"000029"]
    assert await lost(outbox) == set(places[:-2])
    await outbox.close()


@pytest.mark.fault("C14")
async def test_deleted_event_is_named_by_a_gap_record_and_a_log_line(folder, caplog):
    outbox = Outbox.open(settings(folder, max_bytes=2_000_000, group_commit_ms=0))
    name, first = await refuse(outbox, make_arrival(1, data=bytes(60_000)))
    await refuse(outbox, make_arrival(2, data=bytes(60_000)))
    await refuse(outbox, make_arrival(3, data=bytes(60_000)))
    (stream,) = await outbox.streams.pending()
    *_, event = await bodies(outbox, stream.stream)
    gap = decode_gap(event.data)
    assert (event.replayed, gap.reason, gap.detail) == (True, "dropped", module.WHY)
    assert (gap.lost.stream, gap.lost.first, gap.lost.last) == (name, first, first)
    assert "the 1 oldest were deleted" in caplog.text
    assert stream.counts.stored == stream.head
    await outbox.close()


async def test_an_event_larger_than_the_whole_share_is_not_kept(folder, caplog):
    outbox = Outbox.open(settings(folder, max_bytes=1_000_000, group_commit_ms=0))
    await refuse(outbox, make_arrival(1, data=b"small"))
    await refuse(outbox, make_arrival(2, data=bytes(90_000)))
    assert aside(folder) == [b"small"]
    assert "larger than the quarantine" in caplog.text
    await outbox.close()


@pytest.mark.fault("C14")
async def test_a_quarantine_that_an_older_version_let_grow_is_cut_to_its_share(folder, monkeypatch):
    monkeypatch.setattr(module, "SHARE", 0.9)
    outbox = Outbox.open(settings(folder, max_bytes=2_000_000, group_commit_ms=0))
    places = [await refuse(outbox, make_arrival(n, data=b"%06d" % n * 10_000)) for n in range(15)]
    await outbox.close()
    assert len(aside(folder)) == 15
    monkeypatch.undo()
    monkeypatch.setattr(module, "ROWS_AT_ONCE", 4)
    outbox = Outbox.open(settings(folder, max_bytes=2_000_000, group_commit_ms=0))
    assert await put(outbox, make_arrival(data=bytes(400_000))) is Receipt.STORED
    async with asyncio.timeout(LIMIT_S):
        while len(aside(folder)) > 2:
            await outbox.streams.pending()
    assert await lost(outbox) == set(places[:-2])
    await outbox.close()


@pytest.mark.parametrize("lane", [Lane.TELEMETRY, Lane.ALARM])
async def test_refused_events_are_sent_again_under_their_ids(folder, lane):
    outbox = Outbox.open(settings(folder))
    await refuse(outbox, make_arrival(1, data=b"\0first", lane=lane))
    await refuse(outbox, make_arrival(2, lane=lane))
    with sqlite3.connect(folder / "data" / "outbox.db") as connection:
        rows = connection.execute("SELECT stream, sequence, body FROM quarantine").fetchall()
    ids = [decode_event(body).id for *_, body in rows]
    assert await outbox.empty_quarantine([(number, sequence) for number, sequence, _ in rows], resend=True) == 2
    (stream,) = await outbox.streams.pending()
    events = await bodies(outbox, stream.stream, 2)
    assert [(event.id, event.data, event.replayed) for event in events] == [
        (ids[0], b"\0first", True),
        (ids[1], b'{"n": 2}', True),
    ]
    assert aside(folder) == []
    assert stream.counts.stored == stream.head
    assert await put(outbox, make_arrival(3, lane=lane)) is Receipt.STORED
    await outbox.close()


async def test_a_refused_event_that_cannot_be_read_stays(folder):
    outbox = Outbox.open(settings(folder))
    await refuse(outbox, make_arrival(1))
    with sqlite3.connect(folder / "data" / "outbox.db") as connection:
        connection.execute("UPDATE quarantine SET body = x'00'")
    assert await outbox.empty_quarantine([(1, 1)], resend=True) == 0
    assert await outbox.empty_quarantine([(1, 1), (7, 7)], resend=False) == 1
    await outbox.close()


def config(folder):
    (folder / "edge.toml").write_text('tenant = "acme"\ngateway = "gw-1"\ndata = "data"\n[mqtt]\nport = 0\n')
    return ["outbox", "--config", str(folder / "edge.toml")]


async def filled(folder):
    outbox = Outbox.open(settings(folder))
    await refuse(outbox, make_arrival(1))
    await refuse(outbox, make_arrival(2))
    return outbox


def test_the_command_lists_when_each_event_was_recorded_and_of_which_device_and_says_if_there_is_none(folder, capsys):
    asyncio.run(close(folder))
    assert main([*config(folder), "--quarantine"]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == ["STREAM", "SEQUENCE", "RECORDED", "DEVICE", "BODY"]
    assert len(rows) == 2
    for row in rows:
        assert re.match(r" +\d+ +\d+  \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ  \S+ +\{", row), row
    assert main([*config(folder), "--quarantine", "--delete"]) == 0
    capsys.readouterr()
    assert main([*config(folder), "--quarantine"]) == 0
    assert capsys.readouterr() == ("", "the bridge has rejected no event\n")


def test_the_command_acts_on_the_rows_that_it_lists(folder, capsys):
    asyncio.run(close(folder))
    arguments = [*config(folder), "--quarantine", "--limit", "1"]
    assert main([*arguments, "--resend"]) == 0
    assert '{"n": 1}' in capsys.readouterr().out
    assert aside(folder) == [b'{"n": 2}']
    assert main([*arguments, "--delete"]) == 0
    assert "1 of 1 events deleted" in capsys.readouterr().err
    assert aside(folder) == []
    assert main([*arguments, "--delete"]) == 0


async def close(folder) -> None:
    await (await filled(folder)).close()


async def test_the_command_says_that_the_gateway_has_to_be_stopped(folder, capsys):
    outbox = await filled(folder)
    assert await asyncio.to_thread(main, [*config(folder), "--quarantine", "--delete"]) == 2
    assert "is in use by another fogline-edge process: stop it" in capsys.readouterr().err
    assert await asyncio.to_thread(main, [*config(folder), "--delete"]) == 2
    assert "add --quarantine" in capsys.readouterr().err
    assert len(aside(folder)) == 2
    await outbox.close()
