"""The tables in Spark."""

import msgspec
import pytest
from deltalake import DeltaTable

from fogline.errors import Misconfigured
from fogline_cloud.flows import files, schema
from fogline_cloud.flows.tables import make_tables, tables_in


def test_tables_of_an_earlier_version_get_the_new_columns(spark, tmp_path, monkeypatch):
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


def test_a_remote_master_needs_a_folder_that_its_executors_share(flow, make_event, monkeypatch):
    """F12: `master` is remote by its name; here its executors write into the driver's folder first, then elsewhere."""
    remote = msgspec.structs.replace(flow.settings.flow, master="spark://127.0.0.1:7077")
    flow.settings = msgspec.structs.replace(flow.settings, flow=remote)
    flow.land([make_event(b"1")])
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(files, "write_probes", lambda _folder, names: names)
        with pytest.raises(
            Misconfigured, match=r"\[flow\] tables = .*tables: .* master = spark://127.0.0.1:7077, use a folder"
        ):
            flow.run()
    assert flow.rows("events") == []

    flow.run()

    assert len(flow.rows("events")) == 1
    assert not list((flow.tables / "events").glob("_probe*"))
