"""Names and addresses: what is let in."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fogline.address import (
    Control,
    HelloAddress,
    IngestAddress,
    check_identifier,
    parse_address,
    shard_of,
    shown,
)
from fogline.errors import Poison


@pytest.mark.parametrize("name", ["a", "A-1_b.c:d", "x" * 64])
def test_identifiers(name):
    assert check_identifier(name, "device") == name


@pytest.mark.parametrize("name", ["", "x" * 65, "a/b", "a b", "a+", "#", "a\0", "ä", "\u0430", "a\n", "10²"])
@pytest.mark.fault("D9")
def test_texts_that_are_not_identifiers(name):
    with pytest.raises(Poison, match="device"):
        check_identifier(name, "device")


@pytest.mark.parametrize("place", [HelloAddress("t"), IngestAddress("t", 7), Control("t", "gw-1")], ids=str)
def test_an_address_comes_back(place):
    assert parse_address(str(place)) == place


@given(st.text(max_size=40))
@pytest.mark.fault("D9")
def test_any_text_is_an_address_or_poison(text):
    with contextlib.suppress(Poison):
        assert str(parse_address(text)) == text or text.startswith("ingest/")


@given(st.text(max_size=200))
@pytest.mark.fault("D9")
def test_printed_values_are_escaped_for_the_terminal(text):
    assert shown(text).isascii()
    assert shown(text).isprintable()


@given(st.text(min_size=1, max_size=64), st.integers(1, 64))
def test_a_shard_is_within_its_count(gateway, shards):
    assert 0 <= shard_of(gateway, shards) < shards


def test_a_shard_is_the_standard_crc32():
    assert shard_of("123456789", 2**32) == 0xCBF43926
