"""SQL that is generated, and has not been run on what it is for."""

from fogline_cloud.flows.tables.schema import TABLES
from fogline_cloud.sinks.columns import IDENTITY, NEVER_NULL, written_columns
from fogline_cloud.sinks.dialects import create_target, quoted
from fogline_cloud.sinks.place import Kind


def test_a_hypertable_has_chunks_by_a_column_that_is_never_null():
    columns = written_columns("readings", ["value"])
    create, hypertable = create_target(Kind.POSTGRESQL, "iot.o'x", columns, NEVER_NULL["readings"], hypertable=True)
    assert create.startswith(
        'CREATE TABLE "iot"."o\'x" ("source" text NOT NULL, "id" text NOT NULL, "ordinal" integer NOT NULL, '
    )
    assert '"ingested" timestamptz NOT NULL' in create
    assert hypertable == """SELECT create_hypertable('"iot"."o''x"', 'ingested')"""


def test_names_are_quoted():
    assert quoted('a"b') == '"a""b"'
    assert quoted("iot.readings") == '"iot"."readings"'


def test_the_identity_is_of_the_table_and_begins_with_the_time_of_arrival():
    for table, identity in IDENTITY.items():
        assert set(NEVER_NULL[table]) <= set(identity) <= {column.name for column in TABLES[table]}
        assert identity[0] == "ingested"
