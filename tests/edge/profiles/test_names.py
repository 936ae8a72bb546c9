"""Names to identifiers: always the same one, never one for two."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fogline.address import addressed_device, device_identifier, device_name, escape, is_identifier
from fogline.errors import Poison
from fogline_edge.profiles import names as module
from fogline_edge.profiles.names import Names


def test_identifier_is_not_changed():
    assert escape("0x00158d0001dc126a") == "0x00158d0001dc126a"


def test_forbidden_characters_of_a_name_are_escaped():
    assert escape("kitchen/lamp 1") == "kitchen:2Flamp:201"
    assert escape("Küche") == "K:C3:BCche"
    assert escape("a:b") == "a:3Ab"


def test_long_name_is_cut_and_stays_unique():
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


def test_known_name_is_found_by_its_address():
    names = Names({})
    assert names.learn({"lamp": "0x01"}) == {"lamp": "0x01"}
    assert (names.identifier("lamp"), names.identifier("other one")) == ("0x01", "other:20one")


def test_only_changes_are_reported():
    names = Names({"lamp": "0x01", "door": "0x02"})
    assert names.learn({"lamp": "0x01", "front door": "0x02"}) == {"door": None, "front door": "0x02"}
    assert names.learn({"lamp": "0x01", "front door": "0x02"}) == {}


def test_name_that_is_no_identifier_is_not_learned():
    assert Names({}).learn({"lamp": "not one"}) == {}


def test_names_are_bounded(monkeypatch):
    monkeypatch.setattr(module, "MAX_NAMES", 2)
    assert Names({}).learn({"a": "1", "b": "2", "c": "3"}) == {"a": "1", "b": "2"}


@pytest.mark.parametrize(
    "name",
    ["lamp-1", "Wohnzimmer Lampe", "Küche", "温度センサー", "a%b", "A4:C1:38:8D:18:B2", "100 %", "lamp:41", "AB:20C"],
)
def test_a_devices_name_leads_to_its_identifier_and_back(name):
    """G14."""
    identifier = device_identifier(name, "device")
    assert is_identifier(identifier)
    assert device_name(identifier) == name


@pytest.mark.fault("D12")
def test_names_that_differ_in_blank_case_escape_length_or_script_have_identifiers_of_their_own():
    names = json.loads((Path(__file__).parent / "device-names.json").read_text())
    identifiers = [device_identifier(each, "device") for each in names]
    assert len(set(identifiers)) == len(names)
    assert all(map(is_identifier, identifiers))


@pytest.mark.fault("D12")
def test_a_long_name_and_its_identifier_are_one_device():
    long = device_identifier("x" * 65, "device")
    assert device_identifier(long, "device") == device_name(long) == addressed_device(long, "device") == long


@pytest.mark.parametrize(("text", "identifier"), [("AB C", "AB:20C"), ("AB:20C", "AB:20C"), ("AB:3A20C", "AB:3A20C")])
def test_an_operator_addresses_a_device_by_its_identifier_or_by_a_name_that_is_none(text, identifier):
    assert addressed_device(text, "device") == identifier


@pytest.mark.parametrize("name", ["", "a\0b", "a\nb", "\x85", "\ud800", "x" * 4097])
@pytest.mark.fault("D9")
def test_name_that_no_device_can_have_is_refused_with_a_reason(name):
    with pytest.raises(Poison, match=r"client id .* is empty, too long, or holds a control character") as caught:
        device_identifier(name, "client id")
    assert caught.value.reason == "bad-identifier"


@given(st.text(max_size=70), st.text(max_size=70))
@pytest.mark.fault("D12")
def test_two_names_have_two_identifiers_at_every_door(one, other):
    try:
        first, second = device_identifier(one, "device"), device_identifier(other, "device")
    except Poison:
        return
    assert is_identifier(first)
    assert (first == second) == (one == other)
    assert device_identifier(device_name(first), "device") == first


@given(st.text("AaB:23C %", max_size=8), st.text("AaB:23C %", max_size=8))
@pytest.mark.fault("D12")
def test_names_that_look_like_escaped_ones_keep_apart(one, other):
    if one and other:
        assert (device_identifier(one, "device") == device_identifier(other, "device")) == (one == other)
