"""One advertisement that two gateways receive, with real Kafka, Spark and Delta."""

from datetime import timedelta

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from flows.parsers.ble_samples import BTHOME_ADDRESS, BTHOME_ENCRYPTED, BTHOME_KEY
from fogline.advertisement import CONTENT_TYPE, Advertisement, ReceivedAdvertisement, encode, encode_heard, short_uuid
from fogline_cloud.flows.driver import commit
from fogline_cloud.flows.worker.tasks import StagedFiles
from fogline_cloud.settings import SharedSettings, Strategy

BTHOME = short_uuid(0xFCD2)


@pytest.fixture
def heard(make_event):
    """Return an advertisement that a gateway received at `second`, with this packet id and temperature."""

    def make(gateway, second, packet, *, celsius=21, device="tag-1", **given):
        data = bytes((0x40, 0x00, packet % 256, 0x57, celsius))
        minute, rest = divmod(second, 60)
        return make_event(
            encode(Advertisement(service_data={BTHOME: data})),
            id=f"{device}-{packet % 256}-{celsius}",
            device=device,
            subject="bthome",
            content_type=CONTENT_TYPE,
            adapter="ble",
            dedup="shared",
            gateway=gateway,
            stream={"gw-1": "00000000000000a1", "gw-2": "00000000000000a2"}[gateway],
            recordedtime=f"2026-01-02T03:{minute:02d}:{rest:09.6f}Z",
            properties=encode_heard(ReceivedAdvertisement(address=BTHOME_ADDRESS, rssi=-60 if gateway == "gw-1" else -80)),
            **given,
        )

    return make


def told(flow):
    """Return gateway, second and outcome of each row, in order."""
    rows = sorted(flow.rows("events"), key=lambda row: (row["recordedtime"], row["gateway"]))
    return [
        (row["gateway"], row["recordedtime"].strftime("%M:%S"), row["outcome"], row["reason"], row["again"]) for row in rows
    ]


def temperatures(flow):
    rows = [row for row in flow.rows("readings") if row["metric"] == "temperature"]
    return sorted((row["recordedtime"].strftime("%M:%S"), row["gateway"], row["again"]) for row in rows)


@pytest.mark.fault("D6")
def test_an_advertisement_that_two_gateways_received_is_one_row(flow, heard):
    """In one batch, in two, from one that was away for long; and its counter comes round in between."""
    flow.land([heard("gw-1", 0, 7), heard("gw-1", 10, 8)])
    flow.land([heard("gw-2", 1, 7)], partition=1)
    flow.run()
    flow.land([heard("gw-1", 256, 7 + 256)])
    flow.land([heard("gw-2", 11, 8), heard("gw-2", 257, 7 + 256), heard("gw-2", 300, 7 + 256, celsius=22)], partition=1)
    flow.run()

    assert told(flow) == [
        ("gw-1", "00:00", "ok", None, False),
        ("gw-2", "00:01", "duplicate", "shared", True),
        ("gw-1", "00:10", "ok", None, False),
        ("gw-2", "00:11", "duplicate", "shared", True),
        ("gw-1", "04:16", "ok", None, False),
        ("gw-2", "04:17", "duplicate", "shared", True),
        ("gw-2", "05:00", "ok", None, False),
    ]
    assert temperatures(flow) == [
        ("00:00", "gw-1", False),
        ("00:10", "gw-1", False),
        ("04:16", "gw-1", False),
        ("05:00", "gw-2", False),
    ]
    before = flow.rows("events"), flow.rows("readings")
    for done in (flow.checkpoint / "commits").iterdir():
        done.unlink()
    flow.run()
    assert (flow.rows("events"), flow.rows("readings")) == before, "a replay decides the same"


def test_workers_compare_and_derive_the_rows_of_a_large_micro_batch(flow, heard, monkeypatch):
    monkeypatch.setattr(commit, "FEW_EVENTS", 0)
    flow.land([heard("gw-1", 0, 7), heard("gw-1", 10, 8)])
    flow.land([heard("gw-2", 1, 7)], partition=1)
    (batch,) = flow.run()

    assert told(flow) == [
        ("gw-1", "00:00", "ok", None, False),
        ("gw-2", "00:01", "duplicate", "shared", True),
        ("gw-1", "00:10", "ok", None, False),
    ]
    assert [at for at, _, _ in temperatures(flow)] == ["00:00", "00:10"]
    assert batch.outcomes == {"duplicate": 1, "ok": 2}


def test_a_worker_reads_all_of_its_input():
    """Spark would end it, and the next micro-batch would wait for a new worker."""
    given = iter([pa.RecordBatch.from_pydict({"id": [0]})])
    assert len(list(commit._staged(lambda: StagedFiles([], [], [], [], []), given))) == 1
    assert next(given, None) is None


def test_a_copy_of_a_gateway_that_was_offline_for_weeks_is_recognised(flow, heard):
    """F7: Kafka got the first gateway's event three weeks before the other's."""
    flow.land([heard("gw-1", 0, 7), heard("gw-1", 10, 8)])
    flow.run()
    ingest_earlier(flow.tables / "events", timedelta(days=21))
    flow.land([heard("gw-2", 1, 7), heard("gw-2", 11, 9)], partition=1)

    flow.run()

    assert told(flow) == [
        ("gw-1", "00:00", "ok", None, False),
        ("gw-2", "00:01", "duplicate", "shared", True),
        ("gw-1", "00:10", "ok", None, False),
        ("gw-2", "00:11", "ok", None, False),
    ]


def ingest_earlier(table, age):
    """Let Kafka have got every row of a table earlier than it did."""
    log = DeltaTable(table)
    rows = pa.table(log.to_pyarrow_table())
    for name in ("ingested", "day"):
        column = rows.column(name)
        rows = rows.set_column(rows.schema.get_field_index(name), name, pc.subtract(column, pa.scalar(age)).cast(column.type))
    write_deltalake(log, rows, mode="overwrite")


def test_other_strategies_keep_every_gateways_row(flow, heard):
    rules = [
        SharedSettings(device="loud-*", strategy=Strategy.NONE),
        SharedSettings(device="tag-*", strategy=Strategy.MARK, window_s=5),
    ]
    flow.settings = msgspec.structs.replace(flow.settings, flow=msgspec.structs.replace(flow.settings.flow, shared=rules))
    again = {"replayed": True}
    flow.land(
        [heard("gw-1", 0, 7), heard("gw-2", 1, 7), heard("gw-2", 7, 7, device="tag-2"), heard("gw-1", 1, 7, device="tag-2")]
    )
    flow.land([heard("gw-1", 0, 7, device="loud-1"), heard("gw-2", 1, 7, device="loud-1")])
    flow.run()
    flow.land([heard("gw-2", 1, 7, sequence=90, **again), heard("gw-2", 1, 7, device="loud-1", sequence=91, **again)])
    flow.run()

    found = [(row["device"], row["gateway"], row["outcome"], row["reason"], row["again"]) for row in flow.rows("events")]
    assert sorted(found, key=str) == sorted(
        [
            ("tag-1", "gw-1", "ok", None, False),
            ("tag-1", "gw-2", "ok", None, True),
            ("tag-1", "gw-2", "duplicate", "replayed", False),
            ("tag-2", "gw-1", "ok", None, False),
            ("tag-2", "gw-2", "ok", None, False),
            ("loud-1", "gw-1", "ok", None, None),
            ("loud-1", "gw-2", "ok", None, None),
            ("loud-1", "gw-2", "duplicate", "replayed", None),
        ],
        key=str,
    )
    readings = flow.rows("readings")
    once = [row for row in readings if row["device"] == "tag-1" and row["metric"] == "temperature" and not row["again"]]
    assert [row["gateway"] for row in once] == ["gw-1"]
    assert sorted(row["value"] for row in readings if row["device"] == "tag-1" and row["metric"] == "rssi") == [-80, -60]


def test_an_encrypted_advertisement_is_decoded_with_the_key_of_the_file(flow, make_event, tmp_path, tmp_path_factory):
    keys = tmp_path / "keys.toml"
    keys.write_text(f'"{BTHOME_ADDRESS}" = "{BTHOME_KEY.hex()}"\n')
    keys.chmod(0o600)
    flow.settings = msgspec.structs.replace(flow.settings, flow=msgspec.structs.replace(flow.settings.flow, ble_keys=str(keys)))
    body = encode(Advertisement(service_data={BTHOME: BTHOME_ENCRYPTED}))
    flow.land(
        [
            make_event(
                body,
                content_type=CONTENT_TYPE,
                properties=encode_heard(ReceivedAdvertisement(address=BTHOME_ADDRESS, rssi=-50)),
            ),
            make_event(
                body, content_type=CONTENT_TYPE, properties=encode_heard(ReceivedAdvertisement(address="00:00:00:00:00:01"))
            ),
        ]
    )
    flow.run()

    found = {row["metric"]: row["value"] for row in flow.rows("readings")}
    assert found == {"temperature": 25.06, "humidity": 50.55, "rssi": -50}
    assert [(row["outcome"], row["reason"]) for row in flow.rows("events")] == [("ok", None), ("skip", "no-key")]
    logs = list(tmp_path_factory.getbasetemp().rglob("spark.log"))
    assert logs
    written = [path for path in flow.tables.parent.rglob("*") if path.is_file() and path != keys]
    everywhere = b"".join(path.read_bytes() for path in (*logs, *written))
    assert BTHOME_KEY.hex().encode() not in everywhere
    assert BTHOME_KEY not in everywhere
