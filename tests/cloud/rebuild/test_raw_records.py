"""Table `raw` tells of the end of each partition, read from its end."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from fogline.events.event import Lane
from fogline_cloud.flows.tables import schema
from fogline_cloud.flows.tables.files import TableFolder
from fogline_cloud.flows.tables.schema import arrow_schema
from fogline_cloud.kafka.records import COPIED, REPLAYED
from fogline_cloud.rebuild.held import StreamTail
from fogline_cloud.rebuild.raw_records import RawRecords

OLD, NEW = "00000000000000aa", "00000000000000bb"
BEGIN = datetime(2026, 1, 5, tzinfo=UTC)
TOPIC = "hono.telemetry.t"


def headers(stream, sequence, *marks):
    place = {"ce_gateway": "gw-1", "ce_stream": stream, "ce_sequence": str(sequence), "ce_lane": "telemetry"}
    return {**place, **dict.fromkeys(marks, "true")}


CLIENT: dict[str, str] = {}


@pytest.fixture
def raw(folder):
    """Table `raw` of these records of partition 0, a file each; another tenant has one in partition 1."""

    def make(*records):
        for number, each in enumerate([{"tenant": "other"}, *records]):
            ingested = BEGIN + timedelta(hours=number)
            row = {
                "tenant": "t",
                "topic": TOPIC,
                "partition": 0,
                "offset": number,
                "value": b"{}",
                "flow": "main",
                "run": "r",
                "batch": number,
                "day": ingested.date(),
                "ingested": ingested,
                "topic_id": "id",
                "headers": [],
            }
            if number == 0:
                row |= {**each, "partition": 1}
            else:
                row["headers"] = [{"key": key, "value": value.encode()} for key, value in each.items()]
            table = pa.Table.from_pylist([row], arrow_schema(schema.RAW))
            write_deltalake(str(folder / "raw"), table, mode="append", partition_by=["day"])
        return RawRecords(TableFolder(str(folder / "raw")), "t")

    return make


def test_the_last_record_of_a_gateway_and_the_clients_behind_it_are_known(raw):
    found = raw(headers(OLD, 1), CLIENT, headers(NEW, 7), CLIENT, CLIENT).tails()
    assert found.tails == {("gw-1", NEW, 0): StreamTail(Lane.TELEMETRY, 7)}
    assert found.clients == {(TOPIC, 0): 2}


def test_records_that_an_earlier_command_appended_are_known_as_well_as_the_one_before_them(raw):
    copied = [headers(NEW, sequence, REPLAYED, COPIED) for sequence in (4, 5)]
    found = raw(headers(OLD, 1), headers(OLD, 2), *copied, CLIENT).tails()
    assert found.tails == {("gw-1", OLD, 0): StreamTail(Lane.TELEMETRY, 2), ("gw-1", NEW, 0): StreamTail(Lane.TELEMETRY, 5)}
    assert found.clients == {(TOPIC, 0): 1}


def test_no_more_of_the_table_is_read_than_the_end_although_some_partitions_are_empty(raw, monkeypatch):
    """Most partitions of alarms and replies never had a record. A planned fail-over would wait for days of `raw`."""
    monkeypatch.setattr("fogline_cloud.flows.replay.windows.ROWS", 2)
    monkeypatch.setattr("fogline_cloud.flows.replay.windows._SAMPLE_ROWS", 1)
    records = raw(*(headers(OLD, sequence) for sequence in range(1, 6)))
    assert len(records._windows) > 1
    read, windows = RawRecords._within, []

    def noted(self, window, columns):
        windows.append(columns)
        return read(self, window, columns)

    monkeypatch.setattr(RawRecords, "_within", noted)
    records.tails()
    assert len(windows) == 1
    assert "value" not in windows[0]
