"""Conditions on the rows of a table, which a pipeline checks in one of three ways. Open Spark has none. Pure.

    @dp.table
    @expect("has a unit", "unit IS NOT NULL")                     # counts the rows that break it, and keeps them
    @expect_or_drop("plausible", "value BETWEEN -60 AND 60")      # moves these rows to table NAME_rejected
    @expect_or_fail("has a device", "device IS NOT NULL")         # ends the run, and the table stays as it was
    def temperatures(): ...

A condition is SQL over the columns of the function's result. A row meets it only if it is true: null breaks it.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import wraps
from inspect import unwrap
from typing import Any, NoReturn, TypeVar, cast

import msgspec

from fogline.errors import Misconfigured

REJECTED = "_rejected"
"""What the name of a table of rejected rows ends with."""
REASONS = "reasons"
"""Column of a table of rejected rows: the names of the expectations that the row breaks."""
_ATTRIBUTE = "fogline_expectations"
Query = TypeVar("Query", bound=Callable[..., Any])


class Otherwise(StrEnum):
    """What happens to a row that breaks an expectation."""

    WARN = "warn"
    """It is in the table, and counted after each run."""
    DROP = "drop"
    """It is in the table of rejected rows instead."""
    FAIL = "fail"
    """The run ends with an error, and the row is nowhere."""


class Expectation(msgspec.Struct, frozen=True):
    """A condition on the rows of a table."""

    name: str
    condition: str
    otherwise: Otherwise

    @property
    def met(self) -> str:
        """SQL that is true or false, never null."""
        return f"coalesce(({self.condition}), false)"


def expect(name: str, condition: str) -> Callable[[Query], Query]:
    """Return a decorator: after each run, the rows of the table that break the condition are counted."""
    return _decorator(Expectation(name, condition, Otherwise.WARN))


def expect_or_drop(name: str, condition: str) -> Callable[[Query], Query]:
    """Return a decorator: rows that break the condition are in table `NAME_rejected` instead, with the reasons."""
    return _decorator(Expectation(name, condition, Otherwise.DROP))


def expect_or_fail(name: str, condition: str) -> Callable[[Query], Query]:
    """Return a decorator: a row that breaks the condition ends the run."""
    return _decorator(Expectation(name, condition, Otherwise.FAIL))


def _decorator(expectation: Expectation) -> Callable[[Query], Query]:
    if not expectation.name or not expectation.condition.strip():
        raise Misconfigured("an expectation has a name and a condition in SQL")

    def decorate(query: Query) -> Query:
        if not callable(query):
            raise Misconfigured(
                f"expectation {expectation.name!r}: put it below @dp.table, @dp.materialized_view or @dp.append_flow"
            )
        given = expectations_of(query)
        if expectation.name in {each.name for each in given}:
            raise Misconfigured(f"{query.__name__}: there are two expectations {expectation.name!r}")

        @wraps(query)
        def refused(*_: Any) -> NoReturn:  # Spark's own command would take the rows that an expectation drops
            raise Misconfigured(f"{query.__name__} has expectations, so run it with `fogline pipeline run`")

        setattr(refused, _ATTRIBUTE, (expectation, *given))
        return cast("Query", refused)

    return decorate


def expectations_of(query: Callable[..., Any]) -> tuple[Expectation, ...]:
    """Return the expectations of a query function, in the order of its decorators."""
    found: tuple[Expectation, ...] = getattr(query, _ATTRIBUTE, ())
    return found


def query_of(query: Callable[..., Any]) -> Callable[..., Any]:
    """Return the query function below the decorators of expectations."""
    return unwrap(query, stop=lambda each: not hasattr(each, _ATTRIBUTE)) if hasattr(query, _ATTRIBUTE) else query


def accepted(expectations: Sequence[Expectation]) -> str | None:
    """Return the condition in SQL of the rows that are in the table, `None` for all rows. It raises an error for `FAIL`."""
    parts = [each.met for each in expectations if each.otherwise is Otherwise.DROP]
    parts += [
        f"CASE WHEN {each.met} THEN true ELSE raise_error({quoted(broken(each))}) END"
        for each in expectations
        if each.otherwise is Otherwise.FAIL
    ]
    return " AND ".join(parts) or None


def rejected(expectations: Sequence[Expectation]) -> str | None:
    """Return the condition in SQL of the rows that are in the table of rejected rows, `None` if there is no such table."""
    parts = [each.met for each in expectations if each.otherwise is Otherwise.DROP]
    return f"NOT ({' AND '.join(parts)})" if parts else None


def reasons(expectations: Sequence[Expectation]) -> str:
    """Return column `reasons` of the table of rejected rows in SQL: an array of names."""
    names = [
        f"CASE WHEN NOT {each.met} THEN {quoted(each.name)} END" for each in expectations if each.otherwise is Otherwise.DROP
    ]
    return f"array_compact(array({', '.join(names)}))"


def broken(expectation: Expectation) -> str:
    """Return the error for a row that breaks an expectation of kind `FAIL`."""
    return f"expectation '{expectation.name}' is broken by a row: {expectation.condition}"


def quoted(text: str) -> str:
    """Return a text as a literal of Spark's SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
