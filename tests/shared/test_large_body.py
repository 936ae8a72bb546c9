"""References of large bodies, and their way through the formats."""

from datetime import date

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fogline.errors import Poison
from fogline.events.codec import Replay, decode_event, encode_event
from fogline.events.identity import digest
from fogline.events.large_body import (
    CHUNK_BYTES,
    CHUNK_CONTENT_TYPE,
    MAX_BODY_BYTES,
    BodyChunk,
    BodyDigests,
    BodyEnd,
    BodyRef,
    day_of,
    new_body_id,
    read_dataref,
    size_of,
)
from fogline_cloud.kafka.records import event_of, record_of
from fogline_lab.events import make_event

ID = "0f" * 16
ids = st.binary(min_size=16, max_size=16).map(bytes.hex)
parts = st.one_of(
    st.builds(BodyChunk, ids, st.integers(0, 999_999)),
    st.builds(
        BodyRef, ids, st.integers(1, 999_999), st.integers(1, 10**12 - 1), st.binary(min_size=32, max_size=32).map(bytes.hex)
    ),
    st.builds(BodyEnd, ids),
)


@given(parts)
def test_reference_is_read_as_it_was_written(part):
    assert read_dataref(str(part)) == part
    assert size_of(str(part)) == (part.size if isinstance(part, BodyRef) else 0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "https://example.org/a",
        f"fogline-body:{ID}",
        f"fogline-body:{ID}?chunk=07",
        f"fogline-body:{ID}?chunk=-1",
        f"fogline-body:{ID}?chunk=1234567",
        f"fogline-body:{ID}?chunks=0&bytes=1&sha256={'a' * 64}",
        f"fogline-body:{ID}?chunks=1&bytes=1&sha256={'A' * 64}",
        f"fogline-body:../{ID}?chunk=1",
        f"fogline-body:{ID}?chunk=1\n",
    ],
)
def test_anything_else_is_refused(text):
    with pytest.raises(Poison, match="none of a large body") as error:
        read_dataref(text)
    assert error.value.reason == "bad-dataref"


def test_chunk_fills_a_batch_and_a_body_has_fewer_chunks_than_numbers():
    event = make_event(1)
    chunk = msgspec.structs.replace(
        event, data=bytes(range(256)) * (CHUNK_BYTES // 256), content_type=CHUNK_CONTENT_TYPE, dataref=str(BodyChunk(ID, 341))
    )
    assert 256 * 1024 < len(encode_event(chunk)) < 270_000
    assert MAX_BODY_BYTES // CHUNK_BYTES < 999_999


@pytest.mark.parametrize("part", [BodyChunk(ID, 7), BodyRef(ID, 2, 300_000, "a" * 64), BodyEnd(ID)])
def test_reference_passes_outbox_line_and_kafka_also_in_another_stream(part):
    event = msgspec.structs.replace(make_event(1), dataref=str(part))
    assert decode_event(encode_event(event)) == event
    moved = decode_event(Replay(encode_event(event)).encode("00000000000000bb", 9))
    assert moved.dataref == str(part)
    record = record_of(event)
    assert dict(record.headers)["ce_dataref"] == str(part).encode()
    assert event_of(dict(record.headers), record.value, event.tenant) == event


@given(st.lists(st.binary(max_size=300), max_size=20), st.text(max_size=20))
def test_digest_of_pieces_is_that_of_a_small_payload(pieces, channel):
    digests = BodyDigests(channel)
    for each in pieces:
        digests.update(each)
    assert digests.identity == digest(channel, b"".join(pieces))


def test_id_has_its_day():
    assert day_of(new_body_id(1_795_867_200)) == date(2026, 11, 28)
    assert day_of(new_body_id(0)) == date(1970, 1, 1)
    assert new_body_id(0) != new_body_id(0)
