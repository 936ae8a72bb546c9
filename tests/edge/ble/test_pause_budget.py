"""The budget of pauses as a transcript (R1)."""

from collections import Counter
from operator import itemgetter
from random import Random

from fogline_edge.adapters.ble.supervision.pause_budget import (
    DEVICE_PAUSE_S,
    RESERVED_S,
    SPREAD_S,
    TOTAL_PAUSE_S,
    WINDOW_S,
    PauseBudget,
    attempt_s,
)


def paused_by(devices: list[str], until_s: float) -> list[tuple[str, float, float]]:
    """Pauses if each device fails whenever it tries, and tries again as soon as it may, as the radio has them wait."""
    budget, now_s, found, spread = PauseBudget(), 0.0, [], Random(4711)
    wakes_s = dict.fromkeys(devices, 0.0)
    while now_s < until_s:
        device, wake_s = min(wakes_s.items(), key=itemgetter(1))
        now_s = max(now_s, wake_s)
        wait_s = budget.wait_s(device, now_s, failed=True)
        if wait_s > 0:
            wakes_s[device] = now_s + wait_s + spread.uniform(0, SPREAD_S)
            continue
        left_s = budget.left_s(device, now_s, failed=True)
        counted = budget.began(device, now_s)
        found.append((device, now_s, now_s + left_s))
        now_s += left_s
        budget.ended(counted, now_s)
    return found


def most_in_a_window(pauses: list[tuple[str, float, float]]) -> float:
    """The longest pause in all within any window that begins where a pause begins or ends where one ends."""
    begins = [each for _, began_s, ended_s in pauses for each in (began_s, ended_s - WINDOW_S)]
    return max(
        sum(max(0.0, min(ended_s, at_s + WINDOW_S) - max(began_s, at_s)) for _, began_s, ended_s in pauses) for at_s in begins
    )


def test_one_device_pauses_scanning_for_its_share_of_any_minute_at_most():
    assert most_in_a_window(paused_by(["A"], 900)) <= DEVICE_PAUSE_S + 1e-6


def test_devices_that_fail_leave_a_part_of_the_budget_and_each_of_them_gets_its_turn():
    pauses = paused_by(["A", "B", "C", "D"], 1800)
    assert most_in_a_window(pauses) <= TOTAL_PAUSE_S - RESERVED_S + 1e-6
    turns = Counter(device for device, _, _ in pauses)
    assert min(turns[each] for each in "ABCD") >= 10, turns


def test_all_devices_together_pause_scanning_for_a_fifth_of_any_minute_at_most():
    assert TOTAL_PAUSE_S < 0.2 * WINDOW_S
    budget = PauseBudget()
    for device in ("A", "B"):
        budget.ended(budget.began(device, 0), 3)
    assert budget.wait_s("C", 6, failed=True) > 0
    assert budget.wait_s("C", 6, failed=False) == 0
    assert budget.left_s("C", 6, failed=False) == TOTAL_PAUSE_S - 6


def test_a_pause_that_has_not_ended_counts_as_long_as_it_lasts():
    budget = PauseBudget()
    budget.began("A", 0)
    assert budget.left_s("B", 4, failed=True) == TOTAL_PAUSE_S - RESERVED_S - 4
    assert budget.left_s("A", 4, failed=False) == DEVICE_PAUSE_S - 4
    assert budget.wait_s("A", 4.5, failed=False) > 0


def test_pauses_that_take_no_time_are_bounded_in_number():
    budget = PauseBudget()
    tries = 0
    while budget.wait_s(f"{tries}", 0, failed=False) == 0:
        budget.ended(budget.began(f"{tries}", 0), 0)
        tries += 1
        assert tries < 1000, "there is no bound"
    assert budget.wait_s("A", WINDOW_S + 1, failed=False) == 0


def test_attempts_that_fail_get_shorter_and_every_fourth_is_a_long_one():
    assert [attempt_s(20, failures) for failures in range(6)] == [20, 10, 5, 5, 20, 10]
