"""The tables in Spark."""

import pytest
from deltalake import DeltaTable

from fogline.errors import Misconfigured
from fogline_cloud.flows import job
from fogline_cloud.flows.cluster import executor_check, executor_probe
from fogline_cloud.flows.driver.table_creation import make_tables
from fogline_cloud.flows.tables import schema
from fogline_cloud.flows.tables.files import tables_in


def test_tables_of_an_earlier_version_get_the_new_columns(spark, tmp_path, monkeypatch):
    tables = tables_in(str(tmp_path / "tables"), {})
    with monkeypatch.context() as earlier:
        for table in ("EVENTS", "READINGS"):
            earlier.setattr(schema, table, tuple(each for each in getattr(schema, table) if each.name != "again"))
        assert not make_tables(spark, tables)

    assert make_tables(spark, tables)

    for folder, columns in ((tables.events, schema.EVENTS), (tables.readings, schema.READINGS)):
        assert [field.name for field in DeltaTable(folder.uri).schema().fields] == schema.names(columns)

    monkeypatch.setattr(schema, "READINGS", (schema.Column("key", "STRING", "-"), *schema.READINGS))
    with pytest.raises(Misconfigured, match="its columns are not those of this version: source, id"):
        make_tables(spark, tables)


def test_a_remote_master_needs_a_folder_that_its_executors_share(flow, make_event, monkeypatch):
    """The session counts as remote: its executors write nothing into the driver's folder first, then what they are asked."""
    monkeypatch.setattr(job, "is_local", lambda _master: False)
    monkeypatch.setattr(executor_check, "count_executors", lambda _spark: 1)
    flow.land([make_event(b"1")])
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(executor_probe, "_write", lambda _asked: None)
        with pytest.raises(Misconfigured, match=r"tables that the driver does not see: .* master = local.*, use a URL"):
            flow.run()
    assert not flow.tables.exists() or not any(flow.tables.iterdir())

    flow.run()

    assert len(flow.rows("events")) == 1
    assert not list(flow.tables.glob("_probe*"))


@pytest.mark.slow
def test_tables_with_features_that_the_flow_would_break_are_refused(flow, make_event):
    """F11: a foreign DELETE with deletion vectors, a constraint, a column of the user's own."""
    flow.land([make_event(b"%d" % number) for number in range(3)])
    flow.run()
    table = f"delta.`{flow.tables}/events`"
    flow.spark.sql(f"ALTER TABLE delta.`{flow.tables}/readings` ADD COLUMNS (room STRING)")
    flow.spark.sql(f"ALTER TABLE {table} ADD CONSTRAINT early CHECK (sequence < 4)")
    flow.land([make_event(b"4")])
    with pytest.raises(Misconfigured, match=r"events: the flow does not check the constraint early: .* DROP CONSTRAINT early"):
        flow.run()
    flow.spark.sql(f"ALTER TABLE {table} DROP CONSTRAINT early")
    flow.spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    flow.spark.sql(f"DELETE FROM {table} WHERE sequence = 2")
    with pytest.raises(Misconfigured, match=r"events: deletion vectors are on, .* REORG TABLE"):
        flow.run()
    flow.spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'false')")
    with pytest.raises(Misconfigured, match="REORG TABLE"):
        flow.run()
    flow.spark.sql(f"REORG TABLE {table} APPLY (PURGE)")

    flow.run()

    events = flow.spark.read.format("delta").load(f"{flow.tables}/events").orderBy("sequence").collect()
    assert [row["sequence"] for row in events] == [1, 3, 4]
    assert [(row["sequence"], row["room"]) for row in flow.rows("readings")] == [(at, None) for at in (1, 2, 3, 4)]
