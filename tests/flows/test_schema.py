from typing import get_type_hints

from fogline_cloud.flows.tables import schema
from fogline_cloud.flows.tables.schema import STORED
from fogline_cloud.flows.worker.classify import EventRow


def test_a_row_has_exactly_the_decided_columns() -> None:
    assert list(get_type_hints(EventRow)) == schema.names(schema.DECIDED)


def test_parsing_fills_every_column_except_the_partition_column() -> None:
    assert [*STORED.names, "day"] == schema.names(schema.EVENTS)


def test_every_column_has_one_meaning() -> None:
    for table in (schema.EVENTS, schema.READINGS):
        assert len(set(schema.names(table))) == len(table)
        assert all(column.meaning for column in table)
    meanings = [column.meaning for column in schema.EVENTS]
    assert len(set(meanings)) == len(meanings)


def test_a_quote_in_a_meaning_is_escaped() -> None:
    column = schema.Column("a", "INT", "the device's")
    assert schema.ddl_with_meaning((column,)) == "`a` INT COMMENT 'the device\\'s'"
