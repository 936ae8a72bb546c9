"""B10: a shard forgets the streams that ended long ago, and nothing comes twice if an old copy of an outbox has one of them."""

import queue
import time

from cloud.shard.shard_bench import LIMIT_S, Answers
from fogline.events.event import Lane
from fogline.gateway.hello import KNOWN_MS
from fogline_cloud.shard import group_commit
from fogline_cloud.shard.admission import StreamState
from fogline_cloud.shard.inbox import MarksQuery
from fogline_cloud.shard.recovery import read_checkpoint, recover
from fogline_cloud.shard.retirement import INTERVAL_MS, Retirement

NOW = 10 * KNOWN_MS
OLD = NOW - KNOWN_MS


def known(**changed_ms: int) -> dict[tuple[str, str], StreamState]:
    """Streams of gateway `gw`, with the times of their last changes."""
    states = (StreamState(gateway="gw", stream=name, lane=Lane.ALARM, changed_ms=at) for name, at in changed_ms.items())
    return {("gw", each.stream): each for each in states}


def test_b10_only_long_ended_commands_are_forgotten():
    streams, retirement = known(idle=OLD, ended=OLD, ended_lately=OLD + 1), Retirement()
    retirement.announced("gw", ["idle"])
    assert retirement.retired(streams, NOW) == ([("gw", "ended")], [])
    assert set(streams) == {("gw", "idle"), ("gw", "ended_lately")}


def test_b10_the_streams_of_a_gateway_that_said_no_hello_stay():
    streams, retirement = known(old=OLD), Retirement()
    retirement.announced("another", [])
    assert retirement.retired(streams, NOW) == ([], [])
    retirement.announced("gw", [])
    assert retirement.retired(streams, NOW + INTERVAL_MS - 1) == ([], []), "all streams are looked at again too soon"
    assert retirement.retired(streams, NOW + INTERVAL_MS) == ([("gw", "old")], [])


def test_b10_a_stream_of_an_older_checkpoint_stays_for_the_whole_time():
    streams, retirement = known(undated=0), Retirement()
    retirement.announced("gw", [])
    assert retirement.retired(streams, NOW) == ([], [streams["gw", "undated"]])
    assert streams["gw", "undated"].changed_ms == NOW
    assert retirement.retired(streams, NOW + KNOWN_MS - 1) == ([], [])
    assert retirement.retired(streams, NOW + KNOWN_MS + INTERVAL_MS) == ([("gw", "undated")], [])


def test_b10_the_next_owner_does_not_know_a_forgotten_stream(bench, monkeypatch):
    ended, open_now = "0" * 16, "1" * 16
    first, answers, marks = bench.shard(checkpoint_s=0.001), Answers(), queue.SimpleQueue()
    assert answers.of(first, 1, 5, stream=ended, tenant=bench.tenant) == answers.of(
        first, 1, 5, stream=open_now, tenant=bench.tenant
    )
    first.submit(MarksQuery("gw-1", [open_now], marks.put))
    assert [mark.hwm for mark in marks.get(timeout=LIMIT_S)] == [5]
    later_ns = time.time_ns() + (KNOWN_MS + INTERVAL_MS) * 1_000_000
    monkeypatch.setattr(group_commit.time, "time_ns", lambda: later_ns)
    deadline = time.monotonic() + LIMIT_S
    sequence = 5
    while ("gw-1", ended) in read_checkpoint(bench.clients, bench.tenant, 0).streams:
        assert time.monotonic() < deadline, "the stream is not forgotten"
        sequence += 1
        answers.of(first, sequence, sequence, stream=open_now, tenant=bench.tenant)
    heir = recover(bench.clients, bench.tenant, 0).known
    assert {stream: state.hwm for (_, stream), state in heir.items()} == {open_now: sequence}
