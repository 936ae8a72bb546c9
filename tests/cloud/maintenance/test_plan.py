"""Days to compact, and log files to delete."""

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fogline_cloud.flows.tables.change_reader import KEPT, ChangeReader
from fogline_cloud.maintenance.plan import (
    CLOSED_BYTES,
    MOST_CLOSED,
    MOST_OPEN,
    OPEN_BYTES,
    compactions,
    expired_log_files,
    oldest_version,
    vacuum_after,
)

MONDAY, TUESDAY = date(2026, 1, 5), date(2026, 1, 6)
MIB = 1 << 20


def test_a_closed_day_with_a_few_small_files_is_left_alone():
    assert compactions([(MONDAY, 1)] * MOST_CLOSED, TUESDAY) == []
    (found,) = compactions([(MONDAY, 1)] * (MOST_CLOSED + 1), TUESDAY)
    assert (found.day, found.files, found.small, found.target_bytes) == ("2026-01-05", 5, 5, CLOSED_BYTES)


def test_the_open_day_is_compacted_later_and_to_smaller_files():
    assert compactions([(TUESDAY, 1)] * MOST_OPEN, TUESDAY) == []
    (found,) = compactions([(TUESDAY, 1)] * (MOST_OPEN + 1), TUESDAY)
    assert found.target_bytes == OPEN_BYTES
    (found,) = compactions([(TUESDAY, OPEN_BYTES)] * 5, date(2026, 1, 7))
    assert found.small == 5, "the next day they are small"


def test_large_files_are_not_written_again():
    assert compactions([(MONDAY, 100 * MIB)] * 50 + [(TUESDAY, 10 * MIB)] * 900, TUESDAY) == []


def test_the_log_goes_back_to_the_checkpoint_before_the_commits_that_are_kept():
    versions = range(501)
    names = [f"{version:020d}.json" for version in versions]
    names += [f"{version:020d}.checkpoint.parquet" for version in range(100, 501, 100)]
    others = ["_last_checkpoint", "_commits", "00000000000000000001.json.tmp", f"{'0' * 19}1.uuid.json"]
    expired = expired_log_files([*names, *others], 500, 150)
    assert expired == sorted(name for name in names if int(name[:20]) < 300)
    assert expired_log_files(names, 500, 450) == [], "no checkpoint is old enough"


@given(st.sets(st.integers(0, 60)), st.integers(0, 60), st.integers(1, 60))
def test_every_kept_version_can_be_read(checkpoints, newest, keep_commits):
    """Its commits back to a checkpoint, or to the beginning, are there."""
    names = {f"{version:020d}.json" for version in range(newest + 1)}
    names |= {f"{version:020d}.checkpoint.parquet" for version in checkpoints if version <= newest}
    left = names - set(expired_log_files(names, newest, keep_commits))
    for version in range(max(0, newest - keep_commits), newest + 1):
        begin = max((at for at in checkpoints if at <= version and f"{at:020d}.checkpoint.parquet" in left), default=-1)
        assert {f"{at:020d}.json" for at in range(begin + 1, version + 1)} <= left


@given(st.sets(st.integers(0, 60)), st.integers(0, 60), st.integers(1, 60), st.integers(-1, 60))
def test_every_version_after_that_of_a_reader_can_be_read(checkpoints, newest, keep_commits, version):
    names = {f"{each:020d}.json" for each in range(newest + 1)}
    names |= {f"{each:020d}.checkpoint.parquet" for each in checkpoints if each <= newest}
    left = names - set(expired_log_files(names, newest, keep_commits, [ChangeReader("r", version, 0)]))
    assert {f"{each:020d}.json" for each in range(max(version, 0), newest + 1)} <= left


NOW = datetime(2026, 1, 6, 12, tzinfo=UTC)


def ago_ms(ago: timedelta) -> int:
    return int((NOW - ago).timestamp() * 1000)


def test_files_are_kept_since_the_commit_that_the_slowest_reader_has_read():
    readers = [ChangeReader("a", 5, 0), ChangeReader("b", 9, 0)]
    read_at = {5: ago_ms(timedelta(days=12)), 9: ago_ms(timedelta(days=1))}
    assert vacuum_after(7, readers, read_at, NOW) == timedelta(days=12)
    assert vacuum_after(7, readers[1:], read_at, NOW) == timedelta(days=7)
    assert vacuum_after(7, [], {}, NOW) == timedelta(days=7)


def test_files_are_kept_for_no_reader_longer_than_30_days():
    assert vacuum_after(7, [ChangeReader("a", 5, 0)], {5: ago_ms(timedelta(days=300))}, NOW) == KEPT
    assert vacuum_after(7, [ChangeReader("a", 5, 0)], {}, NOW) == KEPT, "the log does not have its version any more"


@pytest.mark.parametrize(
    ("names", "days", "expected"),
    [
        ({"0.json": 9, "1.json": 8, "2.json": 6}, 7, 1),
        ({"0.json": 3, "1.json": 2}, 7, 0),
        ({"5.checkpoint.parquet": 1, "5.json": 1, "6.json": 0}, 7, 5),
        ({"5.checkpoint.parquet": 9, "5.json": 9, "6.json": 8, "7.json": 0}, 7, 6),
    ],
)
def test_the_oldest_version_that_readers_may_ask_for(names, days, expected):
    now = datetime(2026, 1, 31, tzinfo=UTC)
    written = {
        f"{int(number):020}.{kind}": now - timedelta(days=age)
        for name, age in names.items()
        for number, _, kind in [name.partition(".")]
    }
    assert oldest_version(written, now - timedelta(days=days)) == expected
