"""The parts of a replay that need no Spark."""

from datetime import UTC, date, datetime

import pytest

from fogline.errors import Misconfigured
from fogline.process.console.times import moment, seconds
from fogline_cloud.flows.replay.difference import ReadingCells, differences
from fogline_cloud.flows.replay.micro_batches import micro_batches

NOW = datetime(2026, 11, 8, 12, 0, tzinfo=UTC)


def value(metric: str, number: float, unit: str | None = None) -> ReadingCells:
    return ReadingCells(metric, number, None, unit, None)


def test_values_of_one_metric_are_compared_in_their_order() -> None:
    former = [value("t", 1.0), value("t", 2.0), value("gone", 5.0), value("same", 0.0)]
    now = [value("same", 0.0), value("t", 1.0), value("t", 2.5), value("t", 3.0), value("new", 7.0)]
    assert sorted(differences(former, now)) == [("gone", "went"), ("new", "came"), ("t", "came"), ("t", "changed")]
    assert list(differences([value("t", 1.0)], [value("t", 1.0, "Cel")])) == [("t", "changed")]
    assert list(differences(former, former)) == []


def test_micro_batches_are_selected_by_run_and_number() -> None:
    day = date(2026, 11, 1)
    found = micro_batches("main", [(day, "b", 7), (day, "a", 3), (date(2026, 11, 2), "a", 2), (day, "a", 3)])
    assert found.predicate == (
        "day IN (DATE '2026-11-01', DATE '2026-11-02') AND flow = 'main' AND "
        "((run = 'a' AND batch IN (2, 3)) OR (run = 'b' AND batch IN (7)))"
    )
    many = micro_batches("main", [(day, "a", number) for number in range(1, 3000, 2)])
    assert "batch BETWEEN 1 AND 2999" in many.predicate


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7d", datetime(2026, 11, 1, 12, 0, tzinfo=UTC)),
        ("2026-11-01", datetime(2026, 11, 1, tzinfo=UTC)),
        ("2026-11-01T12:00:00+02:00", datetime(2026, 11, 1, 10, 0, tzinfo=UTC)),
    ],
)
def test_a_moment_is_a_date_or_a_length_of_time_ago(text: str, expected: datetime) -> None:
    assert moment("--since", text, NOW) == expected


@pytest.mark.parametrize("text", ["soon", "", "99999999999d", "2026-13-01", "-1d"])
def test_a_wrong_moment_names_the_option(text: str) -> None:
    with pytest.raises(Misconfigured, match="--since"):
        moment("--since", text, NOW)


def test_a_wrong_length_of_time_names_the_option() -> None:
    assert seconds("--ttl", "500ms") == 0.5
    with pytest.raises(Misconfigured, match="--ttl '5x'"):
        seconds("--ttl", "5x")
