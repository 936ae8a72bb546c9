"""Table `fleet` equals a plain count over all events, whatever happens to `events` and to the programs that count."""

import threading
from datetime import date

import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from cloud.fleet.counted_events import CountedEvents
from cloud.fleet.made_events import append, on
from fogline_cloud.fleet import fleet_files, fleet_table
from fogline_cloud.flows.tables.readers import readers_of
from fogline_cloud.maintenance.doubled import undo_doubled
from fogline_cloud.maintenance.table import MaintainedTable
from property_tests import at_most

DAYS = (date(2026, 1, 5), date(2026, 1, 6), date(2026, 1, 19))


def test_an_event_is_counted_by_who_sent_it_when_and_how(counted):
    append(counted, DAYS[0], 200)
    counted.require_exact()
    assert counted.fleet().update().days == ("2026-01-05",)
    assert counted.stored() == counted.model()


def forget(counted: CountedEvents, device: str) -> None:
    kept = ("gap", "statement", "forgotten")
    where = f"device = '{device}' AND outcome NOT IN {kept}"
    gone = dict.fromkeys(("device", "properties", "adapter", "parser", "reason", "detail"), "NULL")
    counted.events.update(where, **gone, outcome="'forgotten'")
    counted.fleet().forget("t", device)
    counted.kept = [each for each in counted.kept if each["device"] != device]


def expire(counted: CountedEvents, day: date) -> None:
    """Delete the rows of a day as maintenance does: they were counted before."""
    counted.fleet().update()
    counted.kept += [row for row in counted.event_rows() if row["day"] == day]
    counted.events.delete(f"day = '{day}'")


def cut(counted: CountedEvents) -> None:
    if counted.events.version:
        counted.events.cut_log(counted.events.version)


STEPS = {
    "append": append,
    "replay": lambda c, day: c.events.replace_day(on(day), day),
    "replay changes": lambda c, day: c.events.replace_day(lambda n: on(day)(n) | {"outcome": "ok", "parser": "csv"}, day),
    "delete some": lambda c, day: c.events.delete(f"day = '{day}' AND sequence % 3 = 0"),
    "forget": lambda c, _: forget(c, "d-1"),
    "compact": lambda c, _: c.events.compact(),
    "expire": expire,
    "update": lambda c, _: c.fleet().update(),
    "log cut": lambda c, _: cut(c),
    "vacuum": lambda c, _: c.events.vacuum(),
}


@settings(max_examples=at_most(60))
@given(steps=st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.sampled_from(DAYS)), max_size=8))
def test_fleet_equals_a_plain_count_after_any_history(tmp_path_factory, steps):
    counted = CountedEvents(tmp_path_factory.mktemp("fleet"))
    append(counted, DAYS[0])
    expired = set()
    for name, day in steps:
        if day in expired and name not in {"update", "compact", "vacuum", "log cut", "forget"}:
            continue  # nothing comes to a day that was deleted: the next test has that
        STEPS[name](counted, day)
        expired |= {day} if name == "expire" else set()
        counted.require_exact()
    counted.fleet().update()
    counted.require_exact()
    assert counted.stored() == counted.model()


def test_days_that_were_deleted_stay_and_a_replay_of_a_part_does_not_replace_them(counted):
    append(counted, DAYS[0], 40)
    expire(counted, DAYS[0])
    counted.fleet(keep_days=8).update()
    before = counted.stored()
    append(counted, DAYS[0], 3)

    counted.fleet(keep_days=8).update()

    assert counted.stored() == before
    append(counted, DAYS[2], 5)
    counted.events.delete(f"day = '{DAYS[0]}'")
    counted.fleet(keep_days=8).update()
    counted.require_exact()


def test_a_device_is_forgotten_in_days_that_events_does_not_have_any_more(counted):
    append(counted, DAYS[0], 40)
    expire(counted, DAYS[0])

    assert set(counted.fleet().forget("t", "d-1")) == {"2026-01-05"}

    assert {row["device"] for row in counted.answered()} == {None, "d-0", "d-2", "d-3"}


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_update_that_is_killed_at_its_commit_changes_nothing_or_is_done(counted, moment, monkeypatch):
    append(counted, DAYS[0], 30)
    counted.fleet().update()
    append(counted, DAYS[1], 30)
    expected = counted.model()
    write = DeltaTable.create_write_transaction

    def killed(*given, **more):
        if moment == "after":
            write(*given, **more)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(DeltaTable, "create_write_transaction", killed)
        with pytest.raises(KeyboardInterrupt):
            counted.fleet().update()
    assert (counted.stored() == expected) == (moment == "after")
    counted.require_exact()
    counted.fleet().update()
    assert counted.stored() == expected


def test_two_programs_that_count_at_once_count_every_event_once(counted):
    append(counted, DAYS[0], 30)
    failures = []

    def update():
        try:
            for _ in range(5):
                counted.fleet().update()
        except Exception as error:  # noqa: BLE001 - the test fails with it
            failures.append(error)

    programs = [threading.Thread(target=update) for _ in range(2)]
    for each in programs:
        each.start()
    for _ in range(5):
        append(counted, DAYS[1])
    for each in programs:
        each.join(60)
    assert not failures
    counted.fleet().update()
    assert counted.stored() == counted.model()


def test_an_update_that_began_before_a_device_was_forgotten_does_not_bring_it_back(counted, monkeypatch):
    """Its day is deleted from `events` as well, so no later update would look at it; and both commits touch other files."""
    append(counted, DAYS[1], 30)
    counted.fleet().update()
    append(counted, DAYS[0], 30)
    write = fleet_files.FleetFiles._write
    begun = []

    def meanwhile(self, *given):
        if not begun:
            begun.append(True)
            forget(counted, "d-1")
            counted.events.delete(f"day = '{DAYS[0]}'")
        return write(self, *given)

    monkeypatch.setattr(fleet_files.FleetFiles, "_write", meanwhile)
    counted.fleet().update()

    assert "d-1" not in {row["device"] for row in counted.answered()}


def test_rows_that_a_compaction_doubled_are_counted_once_as_soon_as_that_is_undone(counted):
    """The compactions of two maintenance runs at once may double rows; the one that notices undoes it, and changes no row."""
    for _ in range(3):
        append(counted, DAYS[0])
    append(counted, DAYS[1])
    counted.fleet().update()
    twice = DeltaTable(counted.events.folder.uri)
    counted.events.compact()
    twice.optimize.compact()
    assert len(counted.event_rows()) > 28
    counted.fleet().update()
    counted.require_exact()

    assert undo_doubled(MaintainedTable("events", counted.events.folder), 0) == 1

    counted.require_exact()
    counted.fleet().update()
    assert len(counted.event_rows()) == 28
    assert counted.stored() == counted.model()


def test_the_reader_of_the_log_is_registered(counted):
    append(counted, DAYS[0])
    counted.fleet().update()
    assert [(each.name, each.version) for each in readers_of(counted.events.folder)] == [("fleet", counted.events.version)]
    commits = DeltaTable(counted.folder.uri).version()
    counted.fleet().update()
    assert DeltaTable(counted.folder.uri).version() == commits, "nothing has changed, so nothing is committed"


def test_an_update_reads_only_what_is_new(counted, monkeypatch):
    append(counted, DAYS[0], 100)
    counted.fleet().update()
    append(counted, DAYS[0], 7)
    counted.events.compact()
    append(counted, DAYS[0], 3)
    read = []
    count = fleet_table.rows_of_events
    monkeypatch.setattr(fleet_table, "rows_of_events", lambda rows: read.append(len(rows)) or count(rows))

    counted.fleet().update()

    assert sum(read) == 10
    assert counted.stored() == counted.model()
