"""Identities: what enters them, and what does not."""

import base64

from hypothesis import given
from hypothesis import strategies as st

from fogline.events.identity import _base32, digest, semantic_id

TEXT = st.text(max_size=20)
FIELDS = st.tuples(TEXT, TEXT, TEXT, st.lists(st.binary(max_size=12), max_size=4))


def test_an_id_is_26_characters_of_base32():
    made = semantic_id(1, "acme", "lamp-1", "telemetry", b"42")
    assert len(made) == 26
    assert set(made) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567")


@given(st.binary(min_size=16, max_size=16))
def test_our_base32_is_the_standards(data):
    assert _base32(data) == base64.b32encode(data).decode().rstrip("=")


@given(FIELDS, FIELDS)
def test_different_fields_give_different_ids(one, other):
    def make(fields):
        return semantic_id(1, *fields[:3], *fields[3])

    assert (make(one) == make(other)) == (one == other)


def test_fields_cannot_run_into_each_other():
    assert semantic_id(1, "ab", "c", "") != semantic_id(1, "a", "bc", "")
    assert digest("ab", b"c") != digest("a", b"bc")


def test_every_tier_has_ids_of_its_own():
    assert len({semantic_id(tier, "t", "d", "c", b"k") for tier in range(1, 6)}) == 5
