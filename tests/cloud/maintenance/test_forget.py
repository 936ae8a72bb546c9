"""A device is forgotten."""

from datetime import date

import msgspec
import pytest
from deltalake import DeltaTable

from fogline.events.large_body import BodyChunk, new_body_id
from fogline_cloud.cli.main import main
from fogline_cloud.fleet.fleet_table import fleet_of
from fogline_cloud.maintenance.forget import FORGOTTEN, forget
from fogline_cloud.maintenance.table import MaintainedTable
from fogline_cloud.store.object_folder import ObjectFolder

MONDAY, TUESDAY = date(2026, 1, 5), date(2026, 1, 6)


@pytest.fixture
def tables(make_table):
    made = [make_table(name) for name in ("events", "readings")]
    for each in made:
        each.append(MONDAY, "d-1", "d'2")
        each.append(TUESDAY, "d'2", "d-3")
    return made


def test_forgotten_rows_lose_their_content_and_keep_their_positions(tables, settings):
    events, readings = tables
    before, days = events.rows(), []

    assert forget(settings, "d'2", days.append, dry_run=True) == 4
    assert events.rows() == before
    assert forget(settings, "d'2", days.append, dry_run=False) == 4

    assert [(each.table, str(each.day), each.rows) for each in days[4:]] == [
        (name, day, 1) for name in ("events", "readings") for day in ("2026-01-05", "2026-01-06")
    ]
    after = events.rows()
    assert [row["sequence"] for row in after] == [row["sequence"] for row in before] == [1, 2, 101, 102]
    assert [row["outcome"] for row in after] == ["ok", "forgotten", "forgotten", "ok"]
    assert [row["device"] for row in readings.rows()] == ["d-1", "d-3"]
    for row, former in zip(after, before, strict=True):
        forgotten = dict.fromkeys(FORGOTTEN) if row["outcome"] == "forgotten" else {}
        assert row == {**former, **forgotten, "outcome": row["outcome"]}
    assert forget(settings, "d'2", days.append, dry_run=False) == 0


@pytest.fixture
def appends_meanwhile(monkeypatch):
    """Let `append` commit a batch between the snapshot and the commit of each rewrite."""

    def let(append):
        retried = MaintainedTable.retried

        def lose_once(self, step):
            def later():
                append()
                return step()

            return retried(self, later)

        monkeypatch.setattr(MaintainedTable, "retried", lose_once)

    return let


def test_a_flow_appends_while_a_device_is_forgotten(tables, settings, appends_meanwhile):
    """Each rewrite of a day meets a commit of the flow to the same day."""
    events, readings = tables
    appends_meanwhile(lambda: [table.append(TUESDAY, "d-1") for table in tables])

    assert forget(settings, "d-3", lambda _: None, dry_run=False) == 2

    assert [row["outcome"] for row in events.rows()].count("forgotten") == 1
    assert [row["device"] for row in readings.rows()].count("d-3") == 0
    assert len(events.rows()) == len(readings.rows()) + 1 == 8


def test_records_of_the_device_leave_table_raw(tables, settings, make_table, appends_meanwhile):
    """Only a header names their device. Those that the flow appends meanwhile stay."""
    raw = make_table("raw")
    raw.append(MONDAY, "d-2")
    raw.append(TUESDAY, "d-1", "d-2", "d-1")
    appends_meanwhile(lambda: raw.append(TUESDAY, "d-2"))
    days = []

    forget(settings, "d-1", days.append, dry_run=True)
    forget(settings, "d-1", days.append, dry_run=False)

    assert [(each.day, each.rows) for each in days if each.table == "raw"] == [("2026-01-06", 2)] * 2
    rows = DeltaTable(raw.folder.uri).to_pyarrow_table(columns=["value", "batch"]).to_pylist()
    assert sorted(row["value"] for row in rows if row["batch"] < 2) == [b"1", b"102"]
    assert len(rows) == raw.batches, "one record of each batch is left"


def test_the_command_says_when_the_bytes_are_gone(tables, settings, tmp_path, capsys):
    config = tmp_path / "cloud.toml"
    config.write_text(f'tenant = "t"\n[flow]\ntables = "{settings.flow.tables}"\n')
    assert main(["table", "forget", "d-1", "--config", str(config)]) == 0
    out = capsys.readouterr().out
    assert "2 rows forgotten. Files with them are deleted by 20" in out
    assert "Kafka keeps what the device sent" in out
    assert main(["table", "forget", "nobody", "--config", str(config), "--json"]) == 0
    assert msgspec.json.decode(capsys.readouterr().out)["rows"] == 0


def test_a_forgotten_device_leaves_the_counts_of_the_fleet_also_of_days_that_were_deleted(tables, settings):
    events, _ = tables
    today = date(2026, 1, 7)
    fleet_of(settings, today).update()
    MaintainedTable("events", events.folder).delete_before(TUESDAY)
    days = []

    assert forget(settings, "d'2", days.append, dry_run=True) == 5
    assert forget(settings, "d'2", days.append, dry_run=False) == 5

    assert [(each.table, each.day) for each in days[5:] if each.table == "fleet"] == [
        ("fleet", "2026-01-05"),
        ("fleet", "2026-01-06"),
    ]
    rows = fleet_of(settings, today).current(["device", "events"]).to_pylist()
    assert sorted(((row["device"], row["events"]) for row in rows), key=repr) == [("d-1", 1), ("d-3", 1), (None, 1)]


def test_large_bodies_of_the_device_are_deleted_and_no_others(settings, make_table):
    events, bodies = make_table("events"), ObjectFolder(settings, f"{settings.flow.tables}/bodies")
    make_table("readings")
    for device in ("d-1", "d-2"):
        name = new_body_id(0)
        bodies.put(f"1970-01-01/gateway=gw-1/{name}/000000", device.encode())
        events.append(MONDAY, device, gateway="gw-1", dataref=str(BodyChunk(name, 0)))
    forget(settings, "d-2", lambda _: None, dry_run=False)
    assert [bodies.get(each.path) for each in bodies.objects("")] == [b"d-1"]
