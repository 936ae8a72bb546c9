"""The ledger's equation of identity: rows of events and distinct `(source, id)` are equal."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from fogline_cloud.flows.tables.schema import EVENTS, arrow_schema
from fogline_cloud.ledger.balance import judge
from fogline_cloud.ledger.evidence import EvidenceReader
from fogline_cloud.ledger.marked_tables import MarkedTables
from fogline_cloud.ledger.readings import ReadingSums
from fogline_cloud.settings import CloudSettings, FlowSettings

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
DAY = NOON.date()
NAMES = {
    *("tenant", "topic", "partition", "offset", "gateway", "stream", "lane", "first_sequence", "sequence", "outcome"),
    *("source", "id", "dedup", "again", "recordedtime", "timequality"),
}
FIELDS = arrow_schema(column for column in EVENTS if column.name in NAMES).append(pa.field("day", pa.date32()))


class Events:
    """Table `events`, and its verification. Each row has the next sequence of its gateway's stream."""

    def __init__(self, folder) -> None:
        self.folder = folder
        self.sequences = {"g": 0, "h": 0}

    def append(self, *rows) -> None:
        made = []
        for row in rows:
            gateway = row.get("gateway", "g")
            self.sequences[gateway] = number = self.sequences[gateway] + 1
            place = {"tenant": "t", "topic": gateway, "partition": 0, "offset": number, "stream": f"s-{gateway}"}
            common = {"gateway": gateway, "lane": "telemetry", "outcome": "ok", "dedup": "strong", "timequality": "synced"}
            times = {"recordedtime": NOON + timedelta(seconds=row.pop("at_s", 0)), "day": DAY}
            source = {"source": "/t/devices/d", "first_sequence": number, "sequence": number}
            made.append({**place, **common, **times, **source, **row})
        write_deltalake(self.folder / "events", pa.Table.from_pylist(made, FIELDS), mode="append", partition_by=["day"])

    def findings(self, *, full=False):
        settings = CloudSettings(tenant="t", kafka={"bootstrap.servers": "x"}, flow=FlowSettings(tables=str(self.folder)))
        reader, tables = EvidenceReader("t", {}), MarkedTables(settings)
        tables.read(reader, ReadingSums(), full=full)
        assert tables.summary.wrong == []
        found = [finding for stream in reader.finish() for finding in judge(stream)]
        return [(each.gateway, each.spans) for each in found if each.kind == "identity"]


@pytest.fixture
def events(folder) -> Events:
    made = Events(folder)
    made.append({"id": "a"}, {"id": "b"}, {"id": "a", "source": "/t/devices/other"})
    assert made.findings() == []
    return made


def test_two_events_with_one_id_do_not_balance(events):
    events.append({"id": "c"}, {"id": "a"})
    assert events.findings() == [("g", [(1, 1), (5, 5)])]
    assert events.findings() == [("g", [(1, 1), (5, 5)])], "a later run knows it by its marks"
    assert events.findings(full=True) == [("g", [(1, 1), (5, 5)])]


@pytest.mark.fault("D11")
def test_a_sensor_that_alternates_under_one_counter_value_does_not_balance_if_its_ids_repeat(events):
    events.append(*({"id": f"s{n % 2}", "dedup": "shared", "at_s": n} for n in range(4)))
    assert events.findings() == [("g", [(4, 4), (5, 5), (6, 6), (7, 7)])]


def test_the_id_of_a_shared_event_may_return_when_its_counter_wraps(events):
    events.append(*({"id": "wraps", "dedup": "shared", "at_s": at_s} for at_s in (0, 61, 122)))
    assert events.findings() == []


def test_copies_of_other_gateways_balance(events):
    events.append(
        {"id": "heard", "dedup": "shared"},
        {"id": "heard", "dedup": "shared", "gateway": "h", "at_s": 1},
        {"id": "heard", "dedup": "shared", "gateway": "h", "at_s": 2, "again": True},
    )
    assert events.findings() == []


@pytest.mark.parametrize("outcome", ["gap", "statement", "duplicate", "forgotten"])
def test_rows_that_are_no_events_may_repeat_an_id(events, outcome):
    events.append({"id": "a", "outcome": outcome})
    assert events.findings() == []


def test_copies_that_a_rule_keeps_are_no_finding(events):
    """A rule of the gateway wants them: `marked` ones are marked, and of `none` several have one id."""
    marked = {"id": "m", "dedup": "marked"}
    events.append({**marked, "again": False}, {**marked, "again": True, "gateway": "h"})
    events.append({"id": "n", "dedup": "none"}, {"id": "n", "dedup": "none"})
    assert events.findings() == []
    events.append({"id": "u", "dedup": "unique"}, {"id": "u", "dedup": "unique", "gateway": "h"})
    assert events.findings() != []
