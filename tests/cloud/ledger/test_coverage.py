"""A gateway that holds events, or may hold some, keeps a period from being proven, although nothing is missing so far."""

from datetime import UTC, datetime

import pytest

from fogline.errors import Misconfigured
from fogline.gateway.ledger import Counts
from fogline.process.console.times import day
from fogline_cloud.ledger.balance import LedgerFinding, StreamEvidence
from fogline_cloud.ledger.coverage import GatewayCoverage, coverage_of
from fogline_cloud.ledger.proof import prove
from fogline_cloud.ledger.ranges import SequenceSet

HOUR_MS = 3_600_000
NOON_MS = 1_790_000_000_000


def stream(name="s1", landed=10, stored_ms=NOON_MS, gateway="gw-1", **more) -> StreamEvidence:
    """Evidence of a stream of which everything up to `landed` is in Kafka and the table."""
    spans = [(1, landed)] if landed else []
    made = StreamEvidence(gateway, name, "telemetry", kafka=SequenceSet(spans), table=SequenceSet(spans))
    made.newest = (landed, stored_ms)
    for key, value in more.items():
        setattr(made, key, value)
    return made


def stated(heads: dict[str, int], at_ms=NOON_MS, **counts) -> dict:
    return {"statement": Counts(**counts), "statement_at": 10, "statement_ms": at_ms, "heads": heads}


def only(*streams: StreamEvidence) -> GatewayCoverage:
    (found,) = coverage_of(streams)
    return found


def test_a_gateway_is_complete_until_its_last_statement_whose_streams_have_all_arrived():
    found = only(stream(**stated({"s1": 9, "s2": 4})), stream("s2", landed=4, stored_ms=NOON_MS - HOUR_MS))
    assert (found.complete_ms, found.why) == (NOON_MS, "")


def test_a_stream_that_has_not_arrived_whole_limits_the_gateway_to_its_last_event():
    found = only(stream(**stated({"s1": 9, "s2": 7})), stream("s2", landed=4, stored_ms=NOON_MS - HOUR_MS))
    assert found.complete_ms == NOON_MS - HOUR_MS
    assert "stream s2 has 7 events, and 4 have arrived" in found.why


def test_a_stream_of_which_nothing_has_arrived_leaves_the_gateway_unproven():
    assert only(stream(**stated({"s1": 9, "s2": 1}))).complete_ms == 0


def test_events_that_the_flow_has_not_read_limit_the_gateway():
    found = only(stream(**stated({"s1": 9}), pending=[(10, 10)], pending_ms=NOON_MS - 5))
    assert found.complete_ms == NOON_MS - 5
    assert "the flow has not read" in found.why


def test_the_backlog_is_that_of_the_last_statement():
    assert only(stream(**stated({"s1": 9}, stored=100, settled=63))).backlog == 37


def test_a_gateway_without_a_clock_is_not_proven():
    assert only(stream(stored_ms=0, statement_ms=0, heads={})).complete_ms == 0


GATEWAYS = coverage_of(
    [
        stream(**stated({"s1": 10})),
        stream("s9", gateway="gw-2", stored_ms=NOON_MS - 8 * HOUR_MS, **stated({"s9": 10}, NOON_MS - 8 * HOUR_MS)),
    ]
)


def test_a_silent_gateway_keeps_the_time_after_its_last_statement_from_being_proven():
    proof = prove(GATEWAYS, [], NOON_MS - HOUR_MS)
    assert not proof.proven
    assert [each.gateway for each in proof.silent] == ["gw-2"]
    assert proof.complete_ms == NOON_MS


def test_the_time_before_is_proven():
    assert prove(GATEWAYS, [], NOON_MS - 9 * HOUR_MS).proven


def test_gateway_that_cannot_receive_the_device_or_is_excluded_does_not_count():
    assert prove(GATEWAYS, [], NOON_MS - HOUR_MS, may_hear=lambda gateway: gateway == "gw-1").proven
    proof = prove(GATEWAYS, [], NOON_MS - HOUR_MS, left_out=["gw-2"])
    assert (proof.proven, proof.left_out) == (True, ["gw-2"])


def test_a_hole_leaves_all_devices_of_its_gateway_unproven_and_those_of_other_gateways_proven():
    hole = LedgerFinding("gw-1", "s1", "lost", [(3, 3)], "gw-1 telemetry s1: 3: in neither Kafka nor the table")
    assert not prove(GATEWAYS, [hole], NOON_MS - 9 * HOUR_MS).proven
    assert prove(GATEWAYS, [hole], NOON_MS - 9 * HOUR_MS, may_hear=lambda gateway: gateway == "gw-2").proven


def test_nothing_is_proven_without_a_gateway():
    assert not prove([], [], NOON_MS).proven


def test_a_day_is_a_date_or_a_word():
    now = datetime(2026, 11, 28, 1, 30, tzinfo=UTC)
    assert day("--day", "yesterday", now) == datetime(2026, 11, 27, tzinfo=UTC)
    assert day("--day", "2026-11-01", now) == datetime(2026, 11, 1, tzinfo=UTC)
    with pytest.raises(Misconfigured, match="--day 'monday'"):
        day("--day", "monday", now)
