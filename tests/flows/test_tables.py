"""The tables as Spark has them."""

import pytest
from deltalake import DeltaTable

from fogline.errors import Misconfigured
from fogline_cloud.flows import schema
from fogline_cloud.flows.tables import make_tables, tables_in


def test_tables_of_an_earlier_version_get_the_columns_that_came_later(spark, tmp_path, monkeypatch):
    tables = tables_in(str(tmp_path / "tables"), {})
    with monkeypatch.context() as earlier:
        for table in ("EVENTS", "READINGS"):
            earlier.setattr(schema, table, tuple(each for each in getattr(schema, table) if each.name != "again"))
        assert not make_tables(spark, tables)

    assert make_tables(spark, tables)

    for folder, columns in ((tables.events, schema.EVENTS), (tables.readings, schema.READINGS)):
        assert [field.name for field in DeltaTable(folder.uri).schema().fields] == schema.names(columns)

    monkeypatch.setattr(schema, "READINGS", schema.READINGS[1:])
    with pytest.raises(Misconfigured, match="its columns are not those of this version: source, id"):
        make_tables(spark, tables)
