"""Key files of table `events`."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from fogline_cloud.flows.tables.id_keys import key_path, keys_in, may_hold, read_key_file
from fogline_cloud.flows.tables.table_log import file_sizes
from fogline_cloud.maintenance import key_files, plan
from fogline_cloud.maintenance.forget import forget
from fogline_cloud.maintenance.maintain import maintain

MONDAY, TUESDAY = date(2026, 1, 5), date(2026, 1, 6)
NOW = datetime(2026, 1, 6, 12, tzinfo=UTC)


@pytest.fixture
def events(make_table):
    make_table("readings")
    return make_table("events")


@pytest.fixture
def run(settings):
    """Maintain the tables. Returns the steps as lines of text."""

    def maintained(now=NOW, *, dry_run=False):
        steps = []
        assert maintain(settings, steps.append, now, dry_run=dry_run)
        return [str(step).rpartition(" (")[0] for step in steps if step.step in {"index", "unindex"}]

    return maintained


def key_files_of(table):
    folder = Path(table.folder.path)
    return sorted(str(path.relative_to(folder)) for path in (folder / "_ids").rglob("*.*"))


def needed_by(table):
    return sorted(map(key_path, file_sizes(table.log.snapshot())))


def test_files_of_closed_days_and_large_files_get_key_files(events, run, monkeypatch):
    for day in (MONDAY, MONDAY, TUESDAY):
        events.append(day)

    assert run(dry_run=True) == ["events: key files of 2026-01-05 written: 2"]
    assert key_files_of(events) == []
    assert run() == ["events: key files of 2026-01-05 written: 2"]
    assert run() == []

    monkeypatch.setattr(key_files, "OPEN_BYTES", 2)
    assert run() == ["events: key files of 2026-01-06 written: 1"]
    assert key_files_of(events) == needed_by(events)


def test_a_key_file_goes_with_its_file_and_stays_as_long(events, run, monkeypatch):
    monkeypatch.setattr(plan, "MOST_CLOSED", 1)
    events.append(MONDAY)
    run()
    events.append(MONDAY)
    former = key_files_of(events)

    run(NOW + timedelta(days=30))  # a vacuum is due

    assert (len(former), len(key_files_of(events))) == (1, 1)
    assert key_files_of(events) == needed_by(events) != former
    assert run() == []


def test_a_maintenance_that_was_killed_goes_on(events, run, monkeypatch):
    for _ in range(3):
        events.append(MONDAY)
    write, done = key_files.write_key_file, []

    def die(*given):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(write(*given))

    with monkeypatch.context() as patch:
        patch.setattr(key_files, "write_key_file", die)
        with pytest.raises(KeyboardInterrupt):
            run()
    assert len(key_files_of(events)) == 2
    assert run() == ["events: key files of 2026-01-05 written: 1"]


def test_the_keys_of_a_forgotten_device_are_gone_at_once(events, run, settings):
    events.append(MONDAY, "d-1", "d-2")
    run()
    (path,) = file_sizes(events.log.snapshot())
    with_device = keys_in(events.folder, path)

    forget(settings, "d-2", lambda _: None, dry_run=False)

    assert key_files_of(events) == []
    run()
    (path,) = file_sizes(events.log.snapshot())
    left = read_key_file(events.folder, path)
    assert left is not None
    assert (len(left), len(with_device)) == (1, 2)
    assert may_hold(with_device, left)
