from typing import get_type_hints

from fogline_cloud.flows import schema
from fogline_cloud.flows.outcome import Row
from fogline_cloud.flows.parse import STORED


def test_a_decision_fills_exactly_its_columns() -> None:
    assert list(get_type_hints(Row)) == schema.names(schema.DECIDED)


def test_a_pass_gives_every_column_but_the_partition_column() -> None:
    assert [*STORED.names, "day"] == schema.names(schema.EVENTS)


def test_every_column_says_what_it_means_once() -> None:
    for table in (schema.EVENTS, schema.READINGS):
        assert len(set(schema.names(table))) == len(table)
        assert all(column.meaning for column in table)
    meanings = [column.meaning for column in schema.EVENTS]
    assert len(set(meanings)) == len(meanings)


def test_a_quote_in_a_meaning_does_not_end_it() -> None:
    column = schema.Column("a", "INT", "the device's")
    assert schema.ddl_with_meaning((column,)) == "`a` INT COMMENT 'the device\\'s'"
