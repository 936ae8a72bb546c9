"""The lane scheduler, read as a transcript: what is offered, what goes out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fogline.amqp.scheduler import Scheduler, Share


def line(**shares: Share) -> Scheduler:
    scheduler = Scheduler(chunk_bytes=10)
    for lane, share in shares.items():
        scheduler.add(lane, share)
        scheduler.set_credit(lane, 1000)
    return scheduler


def transcript(scheduler: Scheduler, most: int = 1000) -> list[str]:
    said = []
    while len(said) < most and (chunk := scheduler.next()) is not None:
        ends = ("(" if chunk.first else "") + (")" if chunk.last else "")
        said.append(f"{chunk.link} {chunk.token} {len(chunk.data)}{ends}")
    return said


def test_a_message_goes_out_in_chunks_and_in_order():
    scheduler = line(telemetry=Share())
    scheduler.offer("telemetry", "a", b"x" * 25)
    scheduler.offer("telemetry", "b", b"y")
    assert transcript(scheduler) == ["telemetry a 10(", "telemetry a 10", "telemetry a 5)", "telemetry b 1()"]


def test_a_strict_lane_overtakes_in_the_middle_of_a_message():
    scheduler = line(control=Share(strict=0), telemetry=Share())
    scheduler.offer("telemetry", "big", b"x" * 40)
    assert transcript(scheduler, 2) == ["telemetry big 10(", "telemetry big 10"]
    scheduler.offer("control", "now", b"!")
    assert transcript(scheduler) == ["control now 1()", "telemetry big 10", "telemetry big 10)"]


def test_strict_lanes_go_in_their_order():
    scheduler = line(alarm=Share(strict=2), control=Share(strict=0), reply=Share(strict=1))
    for lane in ("alarm", "reply", "control"):
        scheduler.offer(lane, lane, b"x")
    assert [said.split()[0] for said in transcript(scheduler)] == ["control", "reply", "alarm"]


def test_weights_share_the_line_and_no_lane_starves():
    scheduler = line(telemetry=Share(weight=4), bulk=Share(weight=1))
    scheduler.offer("telemetry", "t", b"x" * 10_000)
    scheduler.offer("bulk", "b", b"x" * 10_000)
    lanes = [said.split()[0] for said in transcript(scheduler, 500)]
    assert lanes.count("telemetry") == pytest.approx(400, abs=2)
    assert lanes.count("bulk") == pytest.approx(100, abs=2)


def test_a_lane_that_was_idle_does_not_catch_up():
    scheduler = line(telemetry=Share(weight=1), bulk=Share(weight=1))
    scheduler.offer("telemetry", "t", b"x" * 10_000)
    transcript(scheduler, 400)
    scheduler.offer("bulk", "b", b"x" * 10_000)
    lanes = [said.split()[0] for said in transcript(scheduler, 100)]
    assert lanes.count("bulk") == pytest.approx(50, abs=2)


def test_without_credit_a_message_does_not_begin_but_one_that_began_ends():
    scheduler = line(telemetry=Share())
    scheduler.set_credit("telemetry", 1)
    scheduler.offer("telemetry", "a", b"x" * 20)
    scheduler.offer("telemetry", "b", b"y")
    assert transcript(scheduler) == ["telemetry a 10(", "telemetry a 10)"]
    scheduler.set_credit("telemetry", 1)
    assert transcript(scheduler) == ["telemetry b 1()"]


def test_a_lane_that_may_not_send_is_passed_over():
    scheduler = line(control=Share(strict=0), telemetry=Share())
    scheduler.offer("control", "c", b"x")
    scheduler.offer("telemetry", "t", b"x")
    chunk = scheduler.next(lambda lane: lane != "control")
    assert chunk is not None
    assert chunk.link == "telemetry"


def test_removed_lane_returns_its_bytes():
    scheduler = line(telemetry=Share())
    scheduler.offer("telemetry", "a", b"x" * 20)
    scheduler.offer("telemetry", "b", b"y")
    assert scheduler.next() is not None
    assert scheduler.remove("telemetry") == ["a", "b"]
    assert scheduler.next() is None


@given(
    st.lists(st.tuples(st.sampled_from(["control", "alarm", "telemetry", "bulk"]), st.integers(1, 60)), min_size=1, max_size=40)
)
def test_every_byte_goes_out_once_and_in_order_within_its_lane(offers):
    scheduler = line(control=Share(strict=0), alarm=Share(strict=1), telemetry=Share(weight=3), bulk=Share(weight=1))
    expected: dict[str, bytes] = {}
    for number, (lane, size) in enumerate(offers):
        message = bytes([number % 251]) * size
        scheduler.offer(lane, number, message)
        expected[lane] = expected.get(lane, b"") + message
    sent: dict[str, bytes] = {}
    while (chunk := scheduler.next()) is not None:
        sent[chunk.link] = sent.get(chunk.link, b"") + bytes(chunk.data)
    assert sent == expected
