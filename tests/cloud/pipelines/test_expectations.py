"""Expectations of a pipeline, and the SQL that they become. Spark runs them in test_pipelines."""

import pytest

from fogline.errors import Misconfigured
from fogline_cloud.pipelines import expect, expect_or_drop, expect_or_fail
from fogline_cloud.pipelines.expectations import (
    Expectation,
    Otherwise,
    accepted,
    expectations_of,
    query_of,
    quoted,
    reasons,
    rejected,
)

WARM = Expectation("warm", "value > 0", Otherwise.DROP)
KNOWN = Expectation("known", "unit = 'Cel'", Otherwise.DROP)
NAMED = Expectation("it's named", "device IS NOT NULL", Otherwise.FAIL)
SMALL = Expectation("small", "value < 9", Otherwise.WARN)


def test_decorators_keep_their_order_and_the_query():
    @expect("small", "value < 9")
    @expect_or_drop("warm", "value > 0")
    @expect_or_fail("it's named", "device IS NOT NULL")
    def query():
        return "rows"

    assert expectations_of(query) == (SMALL, WARM, NAMED)
    assert query.__name__ == "query"
    assert query_of(query)() == "rows"
    assert query_of(len) is len


def test_a_query_with_expectations_does_not_run_where_they_would_be_forgotten():
    query = expect("small", "value < 9")(lambda: "rows")
    with pytest.raises(Misconfigured, match="run it with `fogline pipeline run`"):
        query()


def test_each_row_is_in_the_table_or_in_that_of_the_rejected_ones():
    assert accepted([WARM, KNOWN]) == "coalesce((value > 0), false) AND coalesce((unit = 'Cel'), false)"
    assert rejected([WARM, KNOWN]) == f"NOT ({accepted([WARM, KNOWN])})"
    assert rejected([SMALL, NAMED]) is None


def test_a_warning_selects_no_rows():
    assert accepted([SMALL]) is None


def test_a_failure_raises_an_error_that_names_the_expectation():
    assert accepted([NAMED]) == (
        "CASE WHEN coalesce((device IS NOT NULL), false) THEN true ELSE "
        "raise_error('expectation \\'it\\'s named\\' is broken by a row: device IS NOT NULL') END"
    )


def test_the_reasons_are_the_names_of_the_broken_expectations():
    assert reasons([WARM, SMALL, KNOWN]) == (
        "array_compact(array(CASE WHEN NOT coalesce((value > 0), false) THEN 'warm' END, "
        "CASE WHEN NOT coalesce((unit = 'Cel'), false) THEN 'known' END))"
    )


def test_backslashes_and_quotes_of_a_name_stay_in_its_literal():
    assert quoted("a\\'b") == "'a\\\\\\'b'"


def test_two_expectations_of_one_name_and_one_without_a_condition_are_refused():
    with pytest.raises(Misconfigured, match="two expectations 'small'"):
        expect("small", "value < 8")(expect("small", "value < 9")(lambda: None))
    with pytest.raises(Misconfigured, match="a name and a condition"):
        expect("small", " ")


def test_an_expectation_above_the_decorator_of_spark_is_refused():
    """`@dp.table` returns nothing."""
    with pytest.raises(Misconfigured, match=r"put it below @dp\.table"):
        expect("small", "value < 9")(None)
