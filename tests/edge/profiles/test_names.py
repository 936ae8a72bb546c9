"""Names to identifiers: always the same one, never one for two."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fogline.address import is_identifier
from fogline.errors import Poison
from fogline_edge.profiles import names as module
from fogline_edge.profiles.names import Names, device_identifier, device_name, escape


def test_an_identifier_stays_what_it_is():
    assert escape("0x00158d0001dc126a") == "0x00158d0001dc126a"


def test_what_may_not_stand_there_is_escaped():
    assert escape("kitchen/lamp 1") == "kitchen:2Flamp:201"
    assert escape("Küche") == "K:C3:BCche"
    assert escape("a:b") == "a:3Ab"


def test_a_long_name_is_cut_and_told_apart():
    one, other = escape("x" * 100 + "1"), escape("x" * 100 + "2")
    assert len(one) == 64
    assert one != other
    assert one[:46] == other[:46]


@given(st.text(max_size=100))
def test_every_name_becomes_an_identifier(name):
    assert is_identifier(escape(name))


@given(st.text(max_size=20), st.text(max_size=20))
def test_two_names_never_become_one(one, other):
    assert (escape(one) == escape(other)) == (one == other)


def test_a_name_that_was_told_is_known_by_its_address():
    names = Names({})
    assert names.learn({"lamp": "0x01"}) == {"lamp": "0x01"}
    assert (names.identifier("lamp"), names.identifier("other one")) == ("0x01", "other:20one")


def test_only_what_changed_is_told():
    names = Names({"lamp": "0x01", "door": "0x02"})
    assert names.learn({"lamp": "0x01", "front door": "0x02"}) == {"door": None, "front door": "0x02"}
    assert names.learn({"lamp": "0x01", "front door": "0x02"}) == {}


def test_what_is_no_identifier_is_not_learned():
    assert Names({}).learn({"lamp": "not one"}) == {}


def test_names_are_bounded(monkeypatch):
    monkeypatch.setattr(module, "MAX_NAMES", 2)
    assert Names({}).learn({"a": "1", "b": "2", "c": "3"}) == {"a": "1", "b": "2"}


@pytest.mark.parametrize(
    "name", ["lamp-1", "Wohnzimmer Lampe", "Küche", "温度センサー", "a%b", "d$1", "A4:C1:38:8D:18:B2", "100 %", "lamp:41"]
)
def test_a_devices_name_leads_to_its_identifier_and_back(name):
    """G14."""
    identifier = device_identifier(name, "device")
    assert is_identifier(identifier)
    assert device_name(identifier) == name


@pytest.mark.parametrize("name", ["", "a/b", "a+b", "#", "a\0b", "a\nb", "x" * 65, "ä" * 11])
@pytest.mark.fault("D9")
def test_what_can_name_no_device_is_refused_in_words(name):
    with pytest.raises(Poison, match=r"client id .* is empty, too long, or holds one of") as caught:
        device_identifier(name, "client id")
    assert caught.value.reason == "bad-identifier"


@given(st.text(max_size=70))
@pytest.mark.fault("D9")
def test_any_name_has_one_identifier_that_leads_back_to_it_or_none(name):
    try:
        identifier = device_identifier(name, "device")
    except Poison:
        return
    assert is_identifier(identifier)
    assert device_identifier(device_name(identifier), "device") == identifier
    assert device_name(identifier) == name or is_identifier(name)
