"""Gap records of a device's gateways: which are found, and the words for their reasons."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from fogline.events.gap import Gap, GapReason, encode_gap
from fogline_cloud.console.one_thread import OneThread
from fogline_cloud.console.pages.device_rows import DeviceRows
from fogline_cloud.console.pages.gap_words import MEANINGS, gap_row
from fogline_cloud.flows.tables.files import TableFolder
from fogline_cloud.settings import CloudSettings, FlowSettings
from fogline_lab.flow_table import FlowTable
from rules.source import ROOT

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)


@pytest.fixture
def reader(folder):
    return DeviceRows(CloudSettings(tenant="t", flow=FlowSettings(tables=str(folder))), OneThread("the tables"))


def gap(minutes: int, **more):
    moment = NOW - timedelta(minutes=minutes)
    return {"outcome": "gap", "gateway": "gw-1", "reason": "dropped", "ingested": moment, "recordedtime": moment, **more}


async def test_newest_gap_records_of_the_devices_gateways_are_found(reader, folder):
    rows = [gap(minutes) for minutes in (50, 5, 40, 10, 30)]
    rows += [gap(1, gateway="gw-9"), gap(1, outcome="ok"), gap(1, gateway=None), gap(70)]
    FlowTable("events", TableFolder(str(folder / "events"))).append(len(rows), NOW.date(), lambda n: rows[n])
    found = await reader.gaps(["gw-1", "gw-2"], 4, NOW - timedelta(hours=1))
    assert [(NOW - each["ingested"]).total_seconds() / 60 for each in found] == [5, 10, 30, 40]
    assert await reader.gaps(["gw-2"], 4, NOW - timedelta(hours=1)) == []


def test_reason_is_in_the_words_of_the_operations_page_and_the_device_in_those_of_the_record():
    body = encode_gap(Gap(GapReason.EXPIRED, 3, 3, "too old", "id-3", "lamp-1"))
    row = {**gap(1, reason="expired", data=body), "lane": "telemetry", "stream": "aa", "first_sequence": 3, "sequence": 3}
    found = gap_row({**row, "detail": "too old"})
    assert (found.device, found.meaning, found.count) == ("lamp-1", MEANINGS["expired"], 1)
    for odd in (None, b"", b"[]", b"not JSON"):
        assert gap_row({**row, "detail": None, "data": odd, "reason": "new-reason"}).meaning == ""
    text = (ROOT / "docs" / "operations.md").read_text("utf-8")
    table = dict(
        re.findall(r"^\| `(\w+)` \| (.*) \|$", text.partition("## Gap records")[2].partition("\n## ")[0], re.MULTILINE)
    )
    assert {*MEANINGS} == {each.value for each in GapReason}
    assert {name: table[name] for name in MEANINGS} == MEANINGS
