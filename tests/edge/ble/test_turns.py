"""When something is read; and BlueZ's echo of it, which comes before the answer or after."""

import pytest

from fogline.advertisement import short_uuid
from fogline_edge.adapters.ble.turns import ECHO_S, Echoes, Turns
from fogline_edge.profiles.ble import Read

T, H = short_uuid(0x2A6E), short_uuid(0x2A6F)


def test_each_has_its_turn():
    turns = Turns([Read(characteristic="2a6e", interval_s=10), Read(characteristic="2a6f", interval_s=60)], 0)
    assert turns.next() == (T, 0)
    turns.over(T, 1)
    assert turns.next() == (H, 0)
    turns.over(H, 2)
    assert turns.next() == (T, 10)


def test_what_cannot_be_read_now_is_read_later():
    turns = Turns([Read(characteristic="2a6e", interval_s=10), Read(characteristic="2a6f", interval_s=60)], 0)
    turns.later(T, 1)
    assert turns.next() == (H, 0)
    turns.over(H, 0)
    assert turns.next() == (T, 1)


def test_what_was_missed_is_not_made_up_for():
    turns = Turns([Read(characteristic="2a6e", interval_s=10)], 0)
    turns.over(T, 95)
    assert turns.next() == (T, 95)
    turns.over(T, 96)
    assert turns.next() == (T, 105)


def test_what_a_device_does_not_have_has_no_turn():
    turns = Turns([Read(characteristic="2a6e")], 0)
    turns.forget(T)
    assert turns.next() is None


def reading(echoes: Echoes, value: bytes, now_s: float = 0, *, told: tuple[bytes, ...] = (), listened: bool = True) -> bool:
    echoes.begin(T)
    for each in told:
        assert echoes.told(T, each, now_s)
    return echoes.read(T, value, now_s, listened=listened)


def test_of_a_read_and_its_echo_the_first_counts():
    echoes = Echoes()
    assert reading(echoes, b"1")
    assert not echoes.told(T, b"1", 1)
    assert not reading(echoes, b"2", 2, told=(b"2",))


def test_there_is_one_echo_for_each_read():
    echoes = Echoes()
    assert reading(echoes, b"1")
    assert [echoes.told(T, b"1", 1) for _ in range(2)] == [False, True]


@pytest.mark.parametrize(("value", "now_s"), [(b"2", 1), (b"1", ECHO_S + 0.1)])
def test_another_value_and_a_late_one_are_the_devices_own(value, now_s):
    echoes = Echoes()
    reading(echoes, b"1")
    assert echoes.told(T, value, now_s)


def test_what_is_not_listened_to_has_no_echo():
    echoes = Echoes()
    reading(echoes, b"1", listened=False)
    assert echoes.told(T, b"1", 1)


def test_a_read_that_fails_expects_nothing():
    echoes = Echoes()
    echoes.begin(T)
    assert not echoes.read(T, None, 0, listened=True)
    assert echoes.told(T, b"1", 1)
