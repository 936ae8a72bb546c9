"""Records and tables as the ledger reads them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fogline.gap import GAP_CONTENT_TYPE
from fogline.ledger import STATEMENT_CONTENT_TYPE
from fogline.testing.events import make_event
from fogline_cloud.ledger.balance import judge
from fogline_cloud.ledger.sources import _Reader
from fogline_cloud.reading import Stored
from fogline_cloud.records import record_of

OURS = dict(record_of(make_event(1)).headers)
WRONG = [None, b"", b"\xff\xfe", b"-1", b"0", b"9" * 30, b"9" * 5000, b"x" * 5000]
TYPES = [GAP_CONTENT_TYPE.encode(), STATEMENT_CONTENT_TYPE.encode()]
BODIES = [b"", b"[]", b"\xff", b'{"stream": "\xff"}', b"[" * 100_000, b'{"x":' + b"[" * 100_000, b'{"first": -1, "last": "x"}']


def stored(headers, value=b"17", offset=0):
    return Stored("topic", 0, offset, b"", value, list(headers.items()))


@given(
    st.dictionaries(st.sampled_from(sorted(OURS)), st.sampled_from([*WRONG, *TYPES]) | st.binary(max_size=20), max_size=4),
    st.sampled_from(BODIES),
    st.sampled_from([*TYPES, b"application/json"]),
)
def test_no_foreign_record_ends_the_ledger(wrong, body, content_type):
    reader = _Reader()
    reader.take_record(stored({**OURS, "content-type": content_type, **wrong}, body))
    reader.take_record(stored({**OURS, "ce_gateway": b"honest"}, offset=1))
    assert "honest" in {evidence.gateway for evidence in reader.finish({}, {})}


@pytest.mark.parametrize("number", [b"0", b"9223372036854775808", b"9" * 4000, None])
def test_a_record_whose_number_no_row_can_hold_belongs_to_no_stream(number):
    """The flow writes it without a stream, so the ledger counts it nowhere either."""
    reader = _Reader()
    reader.take_record(stored({**OURS, "ce_sequence": number}))
    assert [finding for evidence in reader.finish({}, {}) for finding in judge(evidence)] == []
