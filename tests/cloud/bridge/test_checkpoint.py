"""Entries of the checkpoint topic that no bridge of ours has written."""

import pytest

from fogline.errors import Poison
from fogline_cloud.bridge.checkpoint import read_entries

DEEP = b'{"x":' + b"[" * 2000 + b"]" * 2000 + b"}"


@pytest.mark.fault("S4")
@pytest.mark.parametrize("value", [b"", b"{", b"[]", b'{"bridge":"\xff"}', DEEP], ids=["empty", "cut", "list", "text", "deep"])
@pytest.mark.parametrize("key", [b"layout", b"owner", b"position", b"route/lamp-1", b"stream/gw-1/00"])
def test_entry_that_cannot_be_read_is_poison_and_named(key, value):
    """S4: an entry of another type, cut, not UTF-8 or nested too deep; the message names its key."""
    with pytest.raises(Poison, match=key.decode()):
        read_entries([(key, value)])


def test_unknown_keys_are_passed_over():
    assert read_entries([(b"\xff", b"{"), (b"of a newer version", b"[")]).streams == {}
