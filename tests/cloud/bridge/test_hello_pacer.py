from heapq import heappop, heappush

from fogline_cloud.bridge.gateways.hello_pacer import HelloPacer


def test_ten_thousand_gateways_come_in_at_the_rate_and_ask_seldom():
    pacer, rate_s, count = HelloPacer(100.0, 0.0), 100.0, 10_000
    coming = [(0.0, number) for number in range(count)]
    entries, asked = [], 0
    while coming:
        now, number = heappop(coming)
        asked += 1
        if wait := pacer.wait_s(now):
            heappush(coming, (now + wait, number))
        else:
            entries.append(now)
    assert entries[-1] <= 1.5 * count / rate_s
    assert asked <= 4 * count
    assert all(later - earlier >= 1 for earlier, later in zip(entries[500:], entries[1000:], strict=False))


def test_a_few_gateways_are_admitted_at_once():
    pacer = HelloPacer(100.0, 0.0)
    assert not any(pacer.wait_s(0.0) for _ in range(100))


def test_a_rate_below_one_admits_two_seconds_worth_in_advance():
    pacer = HelloPacer(0.5, 0.0)
    assert [bool(pacer.wait_s(0.0)) for _ in range(3)] == [False, False, True]
    assert not pacer.wait_s(3.0)
