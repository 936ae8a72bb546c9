"""Long texts of a peer stay in no cache."""

import tracemalloc

import pytest

from fogline.documents.json_payload import is_json_type
from fogline.events.codec import _check_time
from fogline.short_cache import MAX_CHARS, cache_short
from fogline_cloud.flows.parsers import essence
from fogline_cloud.flows.worker.classify import _microseconds
from fogline_cloud.kafka.records import record_of
from fogline_lab.events import make_event

LONG = 100_000


def test_short_texts_are_cached_and_long_ones_are_not():
    calls = []

    @cache_short(10)
    def noted(*given: str) -> int:
        calls.append(given)
        return len(calls)

    assert [noted("a", "b"), noted("a", "b"), noted("b", "a")] == [1, 1, 2]
    assert [noted("x" * (MAX_CHARS + 1)) for _ in range(2)] == [3, 4]


@pytest.mark.fault("S4")
@pytest.mark.parametrize(
    "use",
    [
        lambda n: record_of(make_event(subject=f"{n}" + "s" * LONG)),
        lambda n: record_of(make_event(recordedtime=f"2026-01-02T03:04:05.{n:06d}{'0' * LONG}Z")),
        lambda n: _check_time(f"2026-01-02T03:04:05.{n:06d}{'0' * LONG}Z"),
        lambda n: _microseconds(f"2026-01-02T03:04:05.{n:06d}{'0' * LONG}Z"),
        lambda n: is_json_type(f"{n}" + "c" * LONG),
        lambda n: essence(f"{n}" + "c" * LONG),
    ],
    ids=["subject", "time of a record", "time of an event", "time in the flow", "content type", "content type in the flow"],
)
def test_long_texts_of_a_peer_take_no_lasting_memory(use):
    """A gateway whose events each had another subject of a megabyte could fill the bridge's memory."""
    tracemalloc.start()
    try:
        for n in range(50):
            use(n)
        assert tracemalloc.get_traced_memory()[0] < 10 * LONG
    finally:
        tracemalloc.stop()
