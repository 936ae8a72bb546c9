"""Bodies of events as the file stores them: what was stored once can be read for ever, and damage is an error."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fogline.errors import Poison
from fogline.events.codec import encode_event
from fogline_edge.outbox.rows.stored_body import pack_body, unpack_body
from fogline_lab.events import make_event, make_noise

BODY = encode_event(make_event(7))
STORED = bytes.fromhex(
    "0128b52ffd607b002d0300e40349443761636d656c616d70392d32315431343a31333a32302e3132333436333030313132323333343435"
    "3536366161376e223a20372c202032312e357d7d0d00a1856c01d325b68e050065a4d6849671885b02a335c2b41a3dade3f2199686214e"
    "b882"
)
"""`BODY` as the first version with compressed bodies stored it."""


@given(st.text().map(lambda text: b'{"data":"%s"}' % text.encode()))
def test_every_body_is_read_as_it_was_stored(body):
    assert unpack_body(pack_body(body)) == body


@pytest.mark.parametrize("data", [b"", b"x" * 100_000, make_noise(100_000)], ids=["nothing", "regular", "noise"])
def test_a_stored_body_is_never_longer_than_its_event(data):
    body = encode_event(make_event(data=data, content_type="text/plain"))
    assert len(pack_body(body)) <= len(body)
    assert unpack_body(pack_body(body)) == body


def test_a_typical_event_takes_less_than_a_third():
    assert len(pack_body(BODY)) < len(BODY) / 3


def test_a_body_of_the_former_version_is_read_as_it_is():
    assert unpack_body(BODY) == BODY


def test_damage_in_a_compressed_body_is_an_error_or_changes_nothing_but_the_body():
    """No error but this one is raised, and no more memory is taken than an event may have."""
    stored = pack_body(BODY)
    for place in range(1, len(stored)):
        for flipped in (1, 128, 255):
            damaged = stored[:place] + bytes([stored[place] ^ flipped]) + stored[place + 1 :]
            with contextlib.suppress(Poison):
                assert len(unpack_body(damaged)) < 8 * 1024 * 1024
    for end in range(1, len(stored)):
        with pytest.raises(Poison):
            unpack_body(stored[:end])


def test_a_compressed_body_that_a_former_version_stored_is_read():
    """The dictionary is part of the file's format: a change needs another first byte."""
    assert unpack_body(STORED) == BODY
