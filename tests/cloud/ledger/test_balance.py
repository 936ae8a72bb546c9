"""Findings of the ledger about one stream, from its evidence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fogline.gateway.ledger import Counts
from fogline_cloud.ledger.balance import StreamEvidence, judge
from fogline_cloud.ledger.ranges import collect, shown, without

SPANS = st.lists(st.tuples(st.integers(1, 60), st.integers(0, 8)).map(lambda pair: (pair[0], pair[0] + pair[1])), max_size=12)


def numbers(spans):
    return {number for first, last in spans for number in range(first, last + 1)}


@given(SPANS)
def test_collected_spans_are_the_same_numbers(spans):
    collected = collect(spans)
    assert numbers(collected.spans) == numbers(spans)
    assert collected.count == len(numbers(spans))
    seen = [number for first, last in spans for number in range(first, last + 1)]
    assert numbers(collected.duplicates) == {number for number in seen if seen.count(number) > 1}


@given(SPANS, SPANS)
def test_without_is_the_difference(one, other):
    assert numbers(without(collect(one).spans, collect(other).spans)) == numbers(one) - numbers(other)


def test_a_long_list_of_spans_is_shortened():
    assert shown([(1, 1), (3, 5), (7, 7)], most=2) == "1, 3..5 and 1 more"


def stream(kafka, table, **more) -> StreamEvidence:
    evidence = StreamEvidence("gw-1", "s", "telemetry", **more)
    evidence.kafka, evidence.table = collect(kafka), collect(table)
    return evidence


def kinds(evidence):
    return {finding.kind: finding.spans for finding in judge(evidence)}


def test_a_stream_that_balances():
    assert kinds(stream([(1, 100)], [(1, 60), (61, 100)])) == {}


@pytest.mark.parametrize(
    ("kafka", "table", "expected"),
    [
        ([(1, 100)], [(1, 41), (43, 100)], {"table-missing": [(42, 42)]}),
        ([(1, 100)], [(1, 100), (42, 44)], {"table-double": [(42, 44)]}),
        ([(1, 100), (7, 7)], [(1, 100)], {"kafka-double": [(7, 7)]}),
        ([(1, 40), (51, 100)], [(1, 40), (51, 100)], {"lost": [(41, 50)]}),
        ([(1, 40), (51, 100)], [(1, 100)], {"phantom": [(41, 50)]}),
    ],
    ids=["deleted from the table", "doubled in the table", "doubled in Kafka", "lost", "range deleted from the topic"],
)
def test_an_imbalance_is_reported_with_its_sequences(kafka, table, expected):
    evidence = stream(kafka, table)
    assert kinds(evidence) == expected
    assert "gw-1 telemetry s" in judge(evidence)[0].text


def test_sequences_that_the_flow_has_not_read_yet_are_not_missing():
    assert kinds(stream([(1, 100)], [(1, 60)], pending=[(61, 100)])) == {}


def test_sequences_that_retention_deleted_from_kafka_are_not_missing():
    assert kinds(stream([(51, 100)], [(1, 100)], kafka_from=51)) == {}


def test_the_first_sequence_that_retention_has_left_must_be_in_kafka():
    assert kinds(stream([(52, 100)], [(1, 100)], kafka_from=51)) == {"phantom": [(51, 51)]}


def test_sequences_that_the_retention_of_the_tables_deleted_are_not_missing():
    assert kinds(stream([], [(51, 100)], table_from=51, kafka_from=101)) == {}
    assert kinds(stream([(41, 100)], [(51, 100)], table_from=51)) == {}
    assert kinds(stream([(41, 100)], [(51, 60), (62, 100)], table_from=51)) == {"table-missing": [(61, 61)]}


def test_readings_that_do_not_match_their_events():
    assert kinds(stream([(1, 3)], [(1, 3)], readings_missing=[(2, 2)], readings_double=[(3, 3)])) == {
        "readings-missing": [(2, 2)],
        "readings-double": [(3, 3)],
    }


def test_a_gateway_that_acknowledged_more_events_than_kafka_has():
    counts = Counts(acknowledged=12, stored=10, duplicate=1)
    assert kinds(stream([(1, 11)], [(1, 11)], statement=counts, statement_at=11, arrivals_before=11)) == {}
    assert set(kinds(stream([(1, 11)], [(1, 11)], statement=counts, statement_at=11, arrivals_before=10))) == {"statement"}
    assert set(kinds(stream([(1, 11)], [(1, 11)], statement=counts, statement_at=10, arrivals_before=11))) == {"statement"}


def test_events_that_rules_kept_back_or_made_are_accounted_for():
    """Of 20 acknowledged events, 3 are duplicates, 6 said nothing new, 4 are in 2 aggregates, and 1 could not be read."""
    rules = {"same": {"reduced": 6, "unreadable": 1}, "means": {"merged": 4, "aggregate": 2}}
    at = {"statement_at": 10, "arrivals_before": 9}
    counts = Counts(acknowledged=20, stored=9, duplicate=3, rules=rules)
    assert kinds(stream([(1, 10)], [(1, 10)], statement=counts, **at)) == {}
    for rule, outcome in (("same", "reduced"), ("means", "merged"), ("means", "aggregate")):
        wrong = {**rules, rule: {**rules[rule], outcome: rules[rule][outcome] + 1}}
        counts = Counts(acknowledged=20, stored=9, duplicate=3, rules=wrong)
        assert set(kinds(stream([(1, 10)], [(1, 10)], statement=counts, **at))) == {"statement"}


@pytest.mark.parametrize("stored", [9, 11])
def test_a_gateway_that_stored_another_number_of_events_than_its_statement_has_before_it(stored):
    assert statement_problem(10, 10, kafka=[(1, 11)], stored=stored) == [
        f"the gateway counted {stored} stored events before sequence 11"
    ]


def test_events_after_the_end_of_a_closed_stream_are_reported():
    assert kinds(stream([(1, 100)], [(1, 100)], closed_at=100)) == {}
    assert kinds(stream([(1, 102)], [(1, 102)], closed_at=100)) == {"after-closing": [(101, 102)]}


def statement_problem(acknowledged, arrivals, *, kafka, gaps=0, at=11, stored=10):
    """The finding about a statement at `at`: True if the gateway's counts disagree with the events before it."""
    counts = Counts(acknowledged=acknowledged, stored=stored)
    more = {"statement": counts, "statement_at": at, "arrivals_before": arrivals, "gaps_before": gaps}
    found = judge(stream(kafka, kafka, **more))
    return [finding.text.partition(": ")[2] for finding in found if finding.kind == "statement"]


@pytest.mark.parametrize(
    ("acknowledged", "balances"),
    [(6, False), (7, True), (9, True), (10, True), (11, False)],
    ids=["one too few", "no missing event was an arrival", "some", "every missing event was an arrival", "one too many"],
)
def test_events_missing_from_kafka_before_the_statement_may_have_been_arrivals(acknowledged, balances):
    """Sequences 4 to 6 are missing: 3 of the 10 events before the statement at 11; the missing ones after it do not count."""
    found = statement_problem(acknowledged, 7, kafka=[(1, 3), (7, 12), (20, 20)])
    assert (found == []) is balances


@pytest.mark.parametrize(("acknowledged", "balances"), [(5, False), (6, True), (10, True), (11, False)])
def test_events_before_a_gap_record_and_missing_events_are_both_unknown(acknowledged, balances):
    """Of 10 sequences, 6 are arrivals in Kafka, 2 are missing (5 and 6), and a gap record stands for 2 (7 and 8)."""
    found = statement_problem(acknowledged, 6, kafka=[(1, 4), (7, 11)], gaps=2)
    assert (found == []) is balances


@pytest.mark.parametrize(("at", "kafka"), [(11, [(1, 9), (11, 11)]), (11, [(2, 11)]), (2, [(2, 2)])])
def test_the_first_and_the_last_sequence_before_a_statement_may_be_missing_arrivals(at, kafka):
    there = at - 2
    assert statement_problem(there, there, kafka=kafka, at=at, stored=at - 1) == []
    assert statement_problem(there + 1, there, kafka=kafka, at=at, stored=at - 1) == []
    assert statement_problem(there + 2, there, kafka=kafka, at=at, stored=at - 1) != []


def test_a_statement_that_is_first_in_its_stream_has_nothing_before_it():
    assert statement_problem(0, 0, kafka=[(1, 1)], at=1, stored=0) == []
    assert statement_problem(1, 0, kafka=[(1, 1)], at=1, stored=0) == [
        "the gateway acknowledged 1 events before sequence 1, 0 are there"
    ]
