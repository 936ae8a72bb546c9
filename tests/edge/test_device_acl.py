"""The patterns of the devices that a user speaks for."""

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fogline.errors import Misconfigured
from fogline_edge.adapters.device_acl import DeviceAcl

NAMES = st.text("ab-1.", min_size=1, max_size=6)
PATTERNS = st.lists(st.text("ab-1.*?", min_size=1, max_size=5), min_size=1, max_size=3)


@given(PATTERNS, NAMES)
def test_the_patterns_are_those_of_a_shell(patterns, name):
    found = DeviceAcl({"hub": patterns}, "mqtt.acl").others("hub")
    assert (found.fullmatch(name) is not None) == any(fnmatchcase(name, each) for each in patterns)


def test_each_user_has_patterns_of_its_own():
    acl = DeviceAcl({"line-7": ["press-[12]", "oven-[!x]"], "hub": ["*"], "meter": []}, "mqtt.acl")
    assert acl.others("line-7").fullmatch("press-2")
    assert not acl.others("line-7").fullmatch("press-3")
    assert not acl.others("line-7").fullmatch("oven-x")
    assert acl.others("hub").fullmatch("anything")
    assert acl.others("meter") is None
    assert acl.others("nobody") is None


@pytest.mark.parametrize("pattern", ["", "lamp/+", "lamp-#", "{device}", "press-[12", "press-]", "[]", "[!]", "a b", "ä*"])
def test_a_pattern_that_can_match_no_device_is_named(pattern):
    with pytest.raises(Misconfigured, match=r"mqtt\.acl: hub = .*press-\*") as caught:
        DeviceAcl({"hub": ["lamp-*", pattern]}, "mqtt.acl")
    assert repr(pattern) in str(caught.value)


def test_a_user_that_can_be_none_is_named():
    with pytest.raises(Misconfigured, match=r"mqtt\.acl: user '' is empty"):
        DeviceAcl({"": ["*"]}, "mqtt.acl")
