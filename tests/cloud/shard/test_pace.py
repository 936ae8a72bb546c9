"""The size of a transaction and its time follow from what became of the former ones. Pure."""

import pytest

from fogline_cloud.shard.pace import LEAST_BYTES, LIMIT_S, LONGEST_S, MOST_BYTES, Pace


def test_a_transaction_that_fails_is_followed_by_halves_until_one_is_committed():
    pace = Pace()
    sizes = []
    while pace.most_bytes > 300_000:
        pace.failed(pace.most_bytes + 100_000, 20)
        sizes.append(pace.most_bytes)
    assert sizes == [MOST_BYTES // 2, MOST_BYTES // 4, MOST_BYTES // 8, MOST_BYTES // 16]
    assert pace.limit_s == LIMIT_S


def test_a_small_transaction_that_fails_halves_its_own_size():
    pace = Pace()
    pace.failed(1_000_000, 2)
    assert pace.most_bytes == 500_000


@pytest.mark.parametrize(("size_bytes", "pieces"), [(2 * MOST_BYTES, 1), (LEAST_BYTES, 500)], ids=["one piece", "least bytes"])
def test_indivisible_work_gets_twice_the_time_up_to_a_bound(size_bytes, pieces):
    pace = Pace()
    limits = []
    for _ in range(6):
        pace.failed(size_bytes, pieces)
        limits.append(pace.limit_s)
    assert limits == [2 * LIMIT_S, 4 * LIMIT_S, 8 * LIMIT_S, LONGEST_S, LONGEST_S, LONGEST_S]


def test_a_failure_without_work_changes_nothing():
    pace = Pace()
    pace.failed(0, 0)
    assert pace == Pace()


def test_quick_commits_bring_back_the_size_and_the_time():
    pace = Pace(LEAST_BYTES, LONGEST_S)
    pace.committed(pace.limit_s / 2)
    assert pace == Pace(LEAST_BYTES, LONGEST_S)
    for _ in range(10):
        pace.committed(0.1)
    assert pace == Pace()
