"""A mirror that lacks newest records of the registry, the commands and the audit is told so."""

import pytest

from fogline_cloud.kafka.committed_records import CommittedRecord
from fogline_cloud.rebuild.state_records import count_lacking

NOW_MS = 1_000


def record(value, time_ms=NOW_MS, key=b"device/lamp", partition=0):
    return CommittedRecord("fogline.devices.t", partition, 0, key, value, [], time_ms)


@pytest.mark.parametrize(
    ("wanted", "found", "lacking"),
    [
        ([record(b"a")], [], 1),
        ([record(b"a")], [record(b"a")], 0),
        ([record(b"b")], [record(b"a", NOW_MS - 1)], 1),
        ([record(b"b")], [record(b"a")], 1),  # two changes in one millisecond
        ([record(b"b")], [record(b"c", NOW_MS + 1)], 0),  # bridges have run here since
        ([record(b"a", NOW_MS - 1), record(b"")], [record(b"a", NOW_MS - 1)], 1),
        ([record(b"")], [], 0),
        ([record(b"a", partition=2), record(b"")], [record(b"a")], 0),  # it moved to another shard there
        ([record(b"a", key=b"seen/lamp/gw-1")], [], 0),
    ],
)
def test_the_newest_record_of_each_key_counts(wanted, found, lacking):
    assert count_lacking(found, wanted) == lacking


def test_the_end_of_each_chain_of_the_audit_counts():
    wanted = [record(b"1", key=b"c1"), record(b"2", key=b"c2"), record(b"1", key=b"c3", partition=1)]
    assert count_lacking(wanted, wanted, by_partition=True) == 0
    assert count_lacking([wanted[0], wanted[2]], wanted, by_partition=True) == 1
