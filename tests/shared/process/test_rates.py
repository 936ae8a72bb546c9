"""A bucket for each device: no clock, no network."""

import pytest

from fogline.process import rates as module
from fogline.process.rates import LEAST_PAUSE_S, Bucket, DeviceRates


def test_up_to_the_burst_nothing_pauses():
    bucket = Bucket(10, 5, 0.0)
    assert [bucket.pay(0.0) for _ in range(5)] == [0.0] * 5
    assert bucket.pay(0.0) > 0


@pytest.mark.parametrize(("rate_s", "burst"), [(1000.0, 10_000), (100.0, 5), (1.0, 1), (0.5, 3)])
def test_sender_that_pauses_as_asked_keeps_the_rate(rate_s, burst):
    bucket, now_s, sent = Bucket(rate_s, burst, 0.0), 0.0, 0
    while sent < burst + 100 * rate_s:
        now_s += bucket.pay(now_s)
        sent += 1
    assert sent <= burst + rate_s * now_s + 1
    assert now_s == pytest.approx(100, rel=0.05)


def test_a_pause_is_long_enough_to_be_worth_it_and_no_longer_than_the_bucket_takes_to_fill():
    wide, narrow = Bucket(1000, 1000, 0.0), Bucket(1000, 10, 0.0)
    for _ in range(1000):
        wide.pay(0.0)
    for _ in range(10):
        narrow.pay(0.0)
    assert wide.pay(0.0) == LEAST_PAUSE_S
    assert narrow.pay(0.0) == 0.005


def test_each_device_has_its_own_and_only_the_latest_are_remembered(monkeypatch):
    monkeypatch.setattr(module, "MAX_DEVICES", 3)
    rates = DeviceRates(1, 1)
    buckets = {name: rates.bucket(name, 0.0) for name in "abc"}
    assert rates.bucket("a", 0.0) is buckets["a"]
    rates.bucket("d", 0.0)
    assert len(rates) == 3
    assert rates.bucket("a", 0.0) is buckets["a"]
    assert rates.bucket("b", 0.0) is not buckets["b"]
