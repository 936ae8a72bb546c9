"""Times of parsers, compared with plain Python over the same rows."""

import random

import pyarrow as pa
import pytest

from fogline_cloud.console.pages.parser_times import parser_times


def batch(rows):
    schema = pa.schema([("parser", pa.string()), ("parse_us", pa.int64()), ("outcome", pa.string())])
    return pa.RecordBatch.from_pylist([dict(zip(schema.names, each, strict=True)) for each in rows], schema)


def test_times_are_those_of_the_rows_and_the_parser_that_takes_most_is_first():
    chance = random.Random(5)
    quick = [int(chance.lognormvariate(6, 2)) for _ in range(2000)]
    heavy = [900_000] * 30 + [0, 1, 2**45]
    rows = [("quick", each, "ok") for each in quick] + [("heavy", each, "slow" if each == 900_000 else "ok") for each in heavy]
    rows += [(None, 5, "skip"), ("none", None, "dead")]
    chance.shuffle(rows)
    found = parser_times(batch(rows[begin : begin + 300]) for begin in range(0, len(rows), 300))
    assert [each.parser for each in found] == ["heavy", "quick"]
    for each, times in zip(found, (heavy, quick), strict=True):
        assert (each.events, each.most_us) == (len(times), max(times))
        assert each.mean_us == pytest.approx(sum(times) / len(times))
    exact = sorted(quick)[int(0.99 * len(quick)) - 1]
    assert exact <= found[1].p99_us <= exact * 9 / 8 + 1
    assert [each.slow for each in found] == [30, 0]
    assert sum(each.share for each in found) == pytest.approx(1)


def test_without_rows_there_are_no_parsers():
    assert parser_times([]) == []
    assert parser_times([batch([]), batch([(None, None, "gap")])]) == []
