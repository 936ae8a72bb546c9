"""Whatever the outbox takes, the bridge reads: events go through a real file and through the bridge's decoder."""

import asyncio
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from fogline.events.codec import Range, chain_of, encode_batch, read_batch
from fogline.events.event import Arrival, Lane, Receipt
from fogline_edge.outbox.outbox import Outbox
from fogline_lab.events import BEACON, make_arrival
from fogline_lab.gateway.outbox_use import put
from fogline_lab.gateway.outbox_use import settings as outbox_settings
from property_tests import at_most

NESTED = st.builds(
    lambda depth, inner, brackets: b"".join([brackets[0] * depth, inner, brackets[1] * depth]),
    st.integers(0, 200) | st.integers(0, 20_000),
    st.sampled_from([b"", b"0", b'"[{"', b"nul", b"{}"]),
    st.sampled_from([(b"[", b"]"), (b'{"":', b"}"), (b'[{"a":', b"}]")]),
)
PRINTABLE = st.text(st.characters(codec="utf-8"), max_size=20)
ARRIVALS = st.builds(
    make_arrival,
    data=st.binary(max_size=50) | NESTED,
    content_type=st.sampled_from(["application/json", "application/senml+json", "text/plain", "x"]) | PRINTABLE,
    channel=PRINTABLE,
    device=st.from_regex(r"[A-Za-z0-9._:-]{1,64}", fullmatch=True),
    properties=st.none() | PRINTABLE,
    time_ns=st.none() | st.integers(0, 2**63 - 1),
    ttd_s=st.none() | st.integers(-1, 2**32),
    expiry_s=st.none() | st.integers(0, 2**32 - 1),
)


@given(st.lists(ARRIVALS, min_size=1, max_size=4))
@settings(max_examples=at_most(60))
def test_every_event_that_put_accepts_is_readable_for_the_bridge(arrivals: list[Arrival]):
    """G1."""

    async def stored() -> list[tuple[str, bytes]]:
        with tempfile.TemporaryDirectory() as folder:
            outbox = Outbox.open(outbox_settings(Path(folder), group_commit_ms=0))
            assert [await put(outbox, each) for each in arrivals] == [Receipt.STORED] * len(arrivals)
            (stream,) = await outbox.streams.pending()
            rows = await outbox.streams.read(stream.stream, 0, 10)
            await outbox.close()
        span = Range("gw-1", stream.stream, Lane.TELEMETRY, 1, len(rows), chain_of(rows[-1].commit_id))
        batch = read_batch(span, encode_batch(span, [row.body for row in rows], BEACON))
        return [(event.device, event.data) for event in batch.events()]

    assert asyncio.run(stored()) == [(each.device, each.data) for each in arrivals]
