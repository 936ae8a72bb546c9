"""Clocks that are not set, that jump, and devices with a time of their own: nothing is lost, moved or mistaken."""

import pytest

from fogline.commands.command import Deadline
from fogline.commands.signature import TrustedKeys
from fogline.events.codec import decode_event
from fogline.events.event import Receipt, TimeQuality, parse_rfc3339
from fogline.events.identity import DeviceTime
from fogline_edge.downlink import journal
from fogline_edge.downlink.downlink import Downlink
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.outbox.rows.stored_body import unpack_body
from fogline_edge.outbox.writer import clock_correction as module
from fogline_lab.clock import RIGHT_NS, SECOND_NS, YEAR_NS, FakeClock
from fogline_lab.commands import make_command
from fogline_lab.events import make_arrival
from fogline_lab.gateway.outbox_use import put, settings

BOOT_NS = 20 * SECOND_NS
"""What a clock without a battery shows when the machine has started."""


def opened(folder, clock) -> Outbox:
    return Outbox.open(settings(folder), clock=clock)


async def stored(outbox):
    """Every event as the file has it, in order; nothing counts as given to the uplink."""
    await outbox.streams.pending()  # what was to be done after the commit is done

    def read(connection, _):
        return [decode_event(unpack_body(body)) for (body,) in connection.execute("SELECT body FROM event ORDER BY place")]

    return await outbox.read_journal(read)


@pytest.mark.fault("T1")
async def test_events_from_before_the_clock_was_set_get_their_time_once_it_is(folder):
    clock = FakeClock(BOOT_NS)
    outbox = opened(folder, clock)
    await put(outbox, make_arrival(1))
    clock.go_on(60)
    await put(outbox, make_arrival(2, expiry_s=10))
    before = await stored(outbox)
    assert [event.timequality for event in before] == [TimeQuality.UNSYNCED] * 2
    assert before[0].recordedtime == "1970-01-01T00:00:20.000000Z"
    clock.go_on(40)
    clock.wall_ns = RIGHT_NS
    await put(outbox, make_arrival(3))
    after = await stored(outbox)
    assert [parse_rfc3339(event.recordedtime) for event in after] == [RIGHT_NS - each * SECOND_NS for each in (100, 40, 0)]
    assert [event.timequality for event in after] == ["corrected", "corrected", "synced"]
    assert parse_rfc3339(after[1].expirytime) == RIGHT_NS - 30 * SECOND_NS
    assert [(event.id, event.sequence, event.data) for event in after[:2]] == [(e.id, e.sequence, e.data) for e in before]
    await outbox.close()


async def test_row_given_to_the_uplink_is_not_corrected(folder):
    clock = FakeClock(BOOT_NS)
    outbox = opened(folder, clock)
    for n in range(3):
        await put(outbox, make_arrival(n))
    (stream,) = await outbox.streams.pending()
    sent = await outbox.streams.read(stream.stream, 0, 2)
    clock.wall_ns = RIGHT_NS
    await put(outbox, make_arrival(4))
    assert [event.timequality for event in await stored(outbox)] == ["unsynced", "unsynced", "corrected", "synced"]
    assert await outbox.streams.read(stream.stream, 0, 2) == sent
    assert decode_event((await outbox.streams.read(stream.stream, 2, 1))[0].body).timequality == "corrected"
    await outbox.close()


@pytest.mark.fault("T1")
async def test_times_are_corrected_after_a_restart_in_the_same_boot_and_not_in_another(folder):
    clock = FakeClock(BOOT_NS)
    outbox = opened(folder, clock)
    await put(outbox, make_arrival(1))
    await outbox.close()
    clock.reboot(BOOT_NS)
    outbox = opened(folder, clock)
    await put(outbox, make_arrival(2))
    await outbox.close()
    clock.go_on(5)
    clock.wall_ns = RIGHT_NS
    outbox = opened(folder, clock)
    await put(outbox, make_arrival(3))
    first, second, _ = await stored(outbox)
    assert first.timequality == "unsynced"
    assert (second.timequality, parse_rfc3339(second.recordedtime)) == ("corrected", RIGHT_NS - 5 * SECOND_NS)
    await outbox.close()


async def test_many_groups_are_corrected_in_parts_and_settled_ones_are_forgotten(folder, monkeypatch):
    monkeypatch.setattr(module, "RANGES_AT_ONCE", 2)
    clock = FakeClock(BOOT_NS)
    outbox = opened(folder, clock)
    for n in range(9):
        clock.go_on(1)
        await put(outbox, make_arrival(n))
    (stream,) = await outbox.streams.pending()
    outbox.streams.settle(stream.stream, 2)
    await outbox.streams.pending()
    noted = await outbox.read_journal(lambda connection, _: connection.execute("SELECT first, last FROM unsynced").fetchall())
    assert noted == [(n, n) for n in range(3, 10)]
    clock.wall_ns = RIGHT_NS
    await put(outbox, make_arrival(10))
    for _ in range(10):
        await outbox.streams.pending()
    assert [event.timequality for event in await stored(outbox)] == ["corrected"] * 7 + ["synced"]
    assert await outbox.read_journal(lambda connection, _: connection.execute("SELECT * FROM unsynced").fetchall()) == []
    await outbox.close()


@pytest.mark.parametrize("jump_ns", [5 * YEAR_NS, -5 * YEAR_NS], ids=["forward", "backward"])
@pytest.mark.fault("T2")
async def test_no_jump_of_the_clock_expires_moves_or_renames_anything(folder, jump_ns):
    clock = FakeClock()
    outbox = opened(folder, clock)
    downlink = Downlink(outbox, TrustedKeys())
    await downlink.start()
    settled = []
    deadline = Deadline(clock.beacon().boot_id, clock.beacon().boottime_ms + 60_000)
    downlink.received(make_command(id="c-1", deadline=deadline, durable=True), settled.append)
    for n in range(3):
        await put(outbox, make_arrival(n, slot=b"%d" % n))
    clock.go_on(1)
    clock.wall_ns += jump_ns
    assert await put(outbox, make_arrival(2, slot=b"2", again=True)) is Receipt.DUPLICATE
    await put(outbox, make_arrival(3, slot=b"3"))
    events = await stored(outbox)
    assert [event.sequence for event in events] == [1, 2, 3, 4]
    assert [event.data for event in events] == [b'{"n": %d}' % n for n in range(4)]
    assert len({event.id for event in events}) == 4
    (entry,) = await outbox.read_journal(journal.open_entries)
    assert entry.command.deadline.left_ms(clock.beacon()) == 59_000
    assert downlink.counters.expired == 0
    assert outbox._writer._store.age.s == 1
    downlink.close()
    await outbox.close()


@pytest.mark.fault("T3", "X4")
async def test_after_a_reboot_events_are_there_and_a_command_of_unknown_age_is_expired(folder):
    clock = FakeClock()
    outbox = opened(folder, clock)
    await put(outbox, make_arrival(1))
    deadline = Deadline(clock.beacon().boot_id, 10**9)
    outbox.port.act(
        lambda ingest, group: journal.store(
            ingest, group, make_command(id="c-1", deadline=deadline), journal.CommandState.QUEUED
        ),
        lambda _: None,
        urgent=True,
    )
    await outbox.close()
    clock.reboot(BOOT_NS)
    outbox = opened(folder, clock)
    downlink = Downlink(outbox, TrustedKeys())
    await downlink.start()
    await put(outbox, make_arrival(2))
    events = await stored(outbox)
    assert [event.commandstate for event in events] == [None, None, "EXPIRED"]
    assert downlink.counters.expired == 1
    downlink.close()
    await outbox.close()


@pytest.mark.parametrize("year", [1970, 2099])
@pytest.mark.fault("T5")
async def test_a_devices_own_clock_is_kept_and_drives_nothing(folder, year):
    clock = FakeClock()
    outbox = opened(folder, clock)
    own_ns = (year - 1970) * YEAR_NS
    for n in range(2):
        await put(outbox, make_arrival(n, time_ns=own_ns, evidence=DeviceTime(own_ns)))
    await put(outbox, make_arrival(3))
    events = await stored(outbox)
    assert [event.time is not None and parse_rfc3339(event.time) for event in events] == [own_ns, own_ns, False]
    assert {parse_rfc3339(event.recordedtime) for event in events} == {RIGHT_NS}
    assert [event.timequality for event in events] == ["synced"] * 3
    await outbox.close()


@pytest.mark.parametrize("evidence", ["machine", "bridge"])
@pytest.mark.fault("T6")
async def test_a_plausible_time_is_not_synced_before_there_is_evidence(folder, evidence):
    """G10: fake-hwclock starts a machine at its last shutdown, and that was stamped `synced`."""
    clock = FakeClock(RIGHT_NS - 3 * 86_400 * SECOND_NS, synchronized=False)
    outbox = opened(folder, clock)
    await put(outbox, make_arrival(1))
    assert [event.timequality for event in await stored(outbox)] == ["unsynced"]
    assert not clock.compare(RIGHT_NS), "the bridge's clock shows another time"
    clock.go_on(60)
    await put(outbox, make_arrival(2))
    clock.wall_ns = RIGHT_NS
    if evidence == "machine":
        clock.synchronized = True
    else:
        assert clock.compare(RIGHT_NS + 5 * SECOND_NS)
    await put(outbox, make_arrival(3))
    events = await stored(outbox)
    assert [event.timequality for event in events] == ["corrected", "corrected", "synced"]
    assert [parse_rfc3339(event.recordedtime) for event in events] == [RIGHT_NS - 60 * SECOND_NS, RIGHT_NS, RIGHT_NS]
    await outbox.close()
