"""Times of reads; and BlueZ's echo of a read, which comes before its result or after it."""

import pytest

from fogline.advertisement import short_uuid
from fogline_edge.adapters.ble.gatt.read_schedule import ECHO_S, ReadEchoes, ReadSchedule
from fogline_edge.profiles.ble import Read

T, H = short_uuid(0x2A6E), short_uuid(0x2A6F)


def test_each_has_its_turn():
    turns = ReadSchedule([Read(characteristic="2a6e", interval_s=10), Read(characteristic="2a6f", interval_s=60)], 0)
    assert turns.next() == (T, 0)
    turns.done(T, 1)
    assert turns.next() == (H, 0)
    turns.done(H, 2)
    assert turns.next() == (T, 10)


def test_failed_read_is_repeated_later():
    turns = ReadSchedule([Read(characteristic="2a6e", interval_s=10), Read(characteristic="2a6f", interval_s=60)], 0)
    turns.postpone(T, 1)
    assert turns.next() == (H, 0)
    turns.done(H, 0)
    assert turns.next() == (T, 1)


def test_missed_reads_are_not_repeated():
    turns = ReadSchedule([Read(characteristic="2a6e", interval_s=10)], 0)
    turns.done(T, 95)
    assert turns.next() == (T, 95)
    turns.done(T, 96)
    assert turns.next() == (T, 105)


def test_missing_characteristic_has_no_turn():
    turns = ReadSchedule([Read(characteristic="2a6e")], 0)
    turns.remove(T)
    assert turns.next() is None


def reading(
    echoes: ReadEchoes, value: bytes, now_s: float = 0, *, notified: tuple[bytes, ...] = (), subscribed: bool = True
) -> bool:
    """Read, and return True if the result is new."""
    echoes.read_begins(T)
    for each in notified:
        assert not echoes.is_echo(T, each, now_s)
    return not echoes.read_ends(T, value, now_s, subscribed=subscribed)


def test_of_a_read_and_its_echo_the_first_counts():
    echoes = ReadEchoes()
    assert reading(echoes, b"1")
    assert echoes.is_echo(T, b"1", 1)
    assert not reading(echoes, b"2", 2, notified=(b"2",))


def test_there_is_one_echo_for_each_read():
    echoes = ReadEchoes()
    assert reading(echoes, b"1")
    assert [echoes.is_echo(T, b"1", 1) for _ in range(2)] == [True, False]


@pytest.mark.parametrize(("value", "now_s"), [(b"2", 1), (b"1", ECHO_S + 0.1)])
def test_another_value_and_a_late_one_are_the_devices_own(value, now_s):
    echoes = ReadEchoes()
    reading(echoes, b"1")
    assert not echoes.is_echo(T, value, now_s)


def test_characteristic_without_subscription_has_no_echo():
    echoes = ReadEchoes()
    reading(echoes, b"1", subscribed=False)
    assert not echoes.is_echo(T, b"1", 1)


def test_a_read_that_fails_expects_nothing():
    echoes = ReadEchoes()
    echoes.read_begins(T)
    assert echoes.read_ends(T, None, 0, subscribed=True)
    assert not echoes.is_echo(T, b"1", 1)
