"""Events that several gateways received: which rows are the same event."""

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fogline_cloud.flows.worker import cross_gateway_dedup as module
from fogline_cloud.flows.worker.cross_gateway_dedup import DedupVerdict, KafkaPosition, Rules, Sighting, compare
from fogline_cloud.settings import SharedSettings, Strategy

FIRST, AGAIN, REPLAYED = DedupVerdict.FIRST, DedupVerdict.AGAIN, DedupVerdict.REPLAYED
WINDOW_S = 30
RULE = SharedSettings(window_s=WINDOW_S)


def sightings(*rows):
    """`(gateway, second)`, and `replayed`, `settled`, `again`, `unsure` where they hold."""
    found = []
    for offset, (gateway, second, *words) in enumerate(rows):
        flags = {each: each in words for each in ("replayed", "settled", "again")}
        position = KafkaPosition("t", 0, offset)
        found.append(Sighting("d", "i", gateway, round(second * 1e6), position, RULE, **flags, sure="unsure" not in words))
    return found


def verdicts(*rows):
    found = {each.position: verdict for each, verdict in compare(sightings(*rows))}
    return [found[KafkaPosition("t", 0, offset)] for offset, (_, _, *words) in enumerate(rows) if "settled" not in words]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([("a", 0)], [FIRST]),
        ([("a", 0), ("b", 0)], [FIRST, AGAIN]),
        ([("a", 0), ("b", 30)], [FIRST, AGAIN]),
        ([("a", 0), ("b", 30.000001)], [FIRST, FIRST]),
        ([("a", 0), ("b", 1), ("c", 2)], [FIRST, AGAIN, AGAIN]),
        ([("b", 1), ("a", 0)], [AGAIN, FIRST]),
        # the counter came round: the same id, later
        ([("a", 0), ("b", 1), ("a", 256), ("b", 257)], [FIRST, AGAIN, FIRST, AGAIN]),
        ([("a", 0), ("a", 20), ("b", 1), ("b", 21)], [FIRST, FIRST, AGAIN, AGAIN]),
        ([("a", 0), ("b", 20), ("a", 20)], [FIRST, AGAIN, FIRST]),
        # one of them was away, and its rows come late
        ([("a", 0, "settled"), ("a", 256, "settled"), ("b", 257), ("b", 1)], [AGAIN, AGAIN]),
        ([("a", 5, "settled"), ("b", 0)], [AGAIN]),
        ([("a", 0, "settled"), ("b", 1, "settled", "again"), ("b", 3)], [FIRST]),
        ([("a", 0, "settled"), ("b", 1, "settled", "again"), ("c", 3)], [AGAIN]),
        # a clock that nobody had set
        ([("a", 0), ("b", 1, "unsure")], [FIRST, FIRST]),
        ([("a", 0, "unsure"), ("b", 1), ("c", 2)], [FIRST, FIRST, AGAIN]),
        ([("a", 0, "settled", "unsure"), ("b", 1)], [FIRST]),
        ([("a", 0, "unsure"), ("a", 0, "unsure", "replayed")], [FIRST, REPLAYED]),
        # what a gateway sent again
        ([("a", 0, "settled"), ("a", 0, "replayed")], [REPLAYED]),
        ([("a", 0), ("a", 0, "replayed")], [FIRST, REPLAYED]),
        ([("a", 0, "replayed"), ("a", 0, "replayed")], [FIRST, REPLAYED]),
        ([("a", 0, "settled"), ("b", 1, "settled", "again"), ("b", 1, "replayed")], [REPLAYED]),
        ([("a", 0, "settled"), ("a", 256, "replayed")], [FIRST]),
        ([("a", 0, "settled"), ("b", 1, "replayed")], [AGAIN]),
    ],
)
def test_rows_of_one_identity_get_their_verdicts(rows, expected):
    assert verdicts(*rows) == expected


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 600)), max_size=12, unique=True), st.randoms())
def test_no_reading_is_lost_and_the_order_of_arrival_does_not_matter(rows, rng):
    """Every copy has somebody else's first within the window, each gateway one; and the count of firsts stays the same."""
    found = list(zip(rows, verdicts(*rows), strict=True))
    firsts = [row for row, verdict in found if verdict is FIRST]
    for gateway, second in (row for row, verdict in found if verdict is AGAIN):
        assert any(other != gateway and abs(at - second) <= WINDOW_S + 1e-5 for other, at in firsts)
    assert REPLAYED not in [verdict for _, verdict in found]
    shuffled = rng.sample(rows, len(rows))
    assert sorted(row for row, verdict in zip(shuffled, verdicts(*shuffled), strict=True) if verdict is FIRST) == sorted(firsts)


def test_identities_do_not_mix():
    rows = sightings(("a", 0), ("b", 0))
    other = [each._replace(id="j", position=KafkaPosition("t", 1, each.position.offset)) for each in rows]
    assert [verdict for _, verdict in compare([*rows, *other])] == [FIRST, AGAIN, FIRST, AGAIN]


def test_many_copies_are_compared_quickly():
    """Two days of a counter that comes round every minute, by three gateways, in one batch."""
    rows = [(gateway, minute * 60 + at) for minute in range(2880) for at, gateway in enumerate("abc")]
    random.Random(7).shuffle(rows)
    found = verdicts(*rows)
    assert (found.count(FIRST), found.count(AGAIN)) == (2880, 5760)
    assert len(list(itertools.islice(compare(sightings(*rows)), 3))) == 3


def test_a_flood_of_one_identity_is_kept_and_compared_quickly():
    rows = [("a", number / 1000) for number in range(20_000)]
    assert set(verdicts(*rows)) == {FIRST}


def test_the_first_rule_that_matches_applies():
    rules = Rules(
        [
            SharedSettings(device="ibeacon-*", strategy=Strategy.NONE),
            SharedSettings(subject="ruuvi", strategy=Strategy.MARK, window_s=5),
        ]
    )
    assert rules.of("ibeacon-1", "ruuvi").strategy is Strategy.NONE
    assert rules.of("tag-1", "ruuvi").strategy is Strategy.MARK
    assert rules.of("tag-1", "bthome").strategy is Strategy.DROP
    assert [rules.of(*each).window_us for each in (("ibeacon-1", "x"), ("t", "ruuvi"), ("t", "x"))] == [
        -1,
        5_000_000,
        30_000_000,
    ]


def test_the_cache_of_rules_is_bounded(monkeypatch):
    monkeypatch.setattr(module, "_MAX_KNOWN", 10)
    rules = Rules([SharedSettings(device="d-*", strategy=Strategy.MARK)])
    assert {rules.of(f"d-{number}", "s").strategy for number in range(100)} == {Strategy.MARK}
    assert len(rules._known) == 10
