"""A peer's JSON is readable or raises `Poison`; nothing else is raised."""

import pytest

from fogline.dead_letter import decode_dead_letter
from fogline.errors import Poison
from fogline.events.gap import decode_gap
from fogline.gateway.hello import decode_hello, decode_welcome
from fogline.gateway.ledger import decode_statement

DEEP = b"[" * 2000 + b"]" * 2000
UNREADABLE = {
    "no JSON": b"{",
    "another type": b'"x"',
    "a text that is not UTF-8": b'{"stream":"\xff","reason":"\xff","gateway":"\xff","refused":"\xff"}',
    "an unknown member that is nested too deep": b'{"x-unknown":' + DEEP + b"}",
    "maps that are nested too deep": b'{"a":' * 2000 + b"1" + b"}" * 2000,
}


@pytest.mark.fault("S4")
@pytest.mark.parametrize("body", UNREADABLE.values(), ids=UNREADABLE)
@pytest.mark.parametrize("decode", [decode_hello, decode_welcome, decode_gap, decode_statement, decode_dead_letter])
def test_unreadable_document_is_poison(decode, body):
    """S4: JSON that is cut, of another type, not UTF-8 or nested 2,000 levels deep."""
    with pytest.raises(Poison, match="is not readable"):
        decode(body)
