"""Statistics of a gateway: within limits, and readable by newer and older versions."""

import msgspec
import pytest

from fogline.errors import Poison
from fogline.gateway.gateway_statistics import (
    MAX_STATISTICS_BYTES,
    MachineNumbers,
    decode_statistics,
    encode_statistics,
)
from shared.example_statistics import STATISTICS


def changed(**fields: object) -> bytes:
    return msgspec.json.encode({**msgspec.to_builtins(STATISTICS), **fields})


def test_encoded_statistics_decode_to_the_same():
    assert decode_statistics(encode_statistics(STATISTICS)) == STATISTICS


def test_a_newer_gateway_may_send_more_fields_and_a_machine_may_tell_nothing():
    assert decode_statistics(changed(machine={"pressure": 3}, colour="red")).machine == MachineNumbers()


@pytest.mark.parametrize(
    "body",
    [
        changed(version="1\n2"),
        changed(version="x" * 65),
        changed(uptime_s=-1),
        changed(time_ms=2**60),
        changed(outbox={"lanes": {"made-up": {}}}),
        changed(outbox={"used_bytes": 1.5}),
        changed(machine={"temperature_c": 1e300}),
        encode_statistics(STATISTICS) + b" " * MAX_STATISTICS_BYTES,
        b"[" * 5000,
        b"",
    ],
    ids=["line", "long", "negative", "huge", "lane", "fraction", "hot", "padded", "deep", "empty"],
)
def test_numbers_beyond_their_limits_are_refused(body):
    with pytest.raises(Poison):
        decode_statistics(body)
