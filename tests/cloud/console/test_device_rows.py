"""What the page reads from the tables: compared with plain Python over the same rows, late and doubled ones too."""

import math
from datetime import UTC, datetime, timedelta
from statistics import fmean

import numpy as np
import pytest

from fogline_cloud.api.problems import Problem
from fogline_cloud.console import one_thread
from fogline_cloud.console.one_thread import OneThread
from fogline_cloud.console.pages.device_rows import POINTS, DeviceRows, Sums
from fogline_cloud.flows.tables.files import TableFolder
from fogline_cloud.settings import CloudSettings, FlowSettings
from fogline_lab.flow_table import FlowTable

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
DAY = NOW.date()


@pytest.fixture
def tables(folder):
    return {name: FlowTable(name, TableFolder(str(folder / name))) for name in ("readings", "events")}


@pytest.fixture
def reader(folder):
    return DeviceRows(CloudSettings(tenant="t", flow=FlowSettings(tables=str(folder))), OneThread("the tables"))


def reading(seconds: float, value: float | None, **more):
    moment = NOW + timedelta(seconds=seconds)
    return {"device": "d", "metric": "m", "value": value, "time": moment, "ingested": NOW, "recordedtime": moment, **more}


async def test_points_of_a_plot_are_those_of_the_rows_in_its_time(reader, tables):
    begin, step_s = NOW - timedelta(seconds=POINTS), 1.0
    rows = [reading(-seconds, math.sin(seconds) * seconds) for seconds in (0.25, 0.5, 3.5, 17.25, POINTS - 0.5)]
    left_out = [
        reading(-POINTS - 1, 1e9),
        reading(0, 1e9),
        reading(-5, 1e9, device="e"),
        reading(-5, 1e9, metric="n"),
        reading(-5, 1e9, again=True),
        reading(-5, math.nan),
        reading(-5, None, text="x"),
    ]
    every = rows + left_out
    tables["readings"].append(len(every), DAY, lambda n: every[n])
    found = await reader.series("d", "m", begin, NOW)
    parts = {}
    for each in rows:
        parts.setdefault(int((each["time"] - begin).total_seconds() / step_s), []).append(each["value"])
    expected = sorted(parts.items())
    assert found.time_s == pytest.approx([begin.timestamp() + (part + 0.5) * step_s for part, _ in expected])
    assert found.least == [min(values) for _, values in expected]
    assert found.mean == pytest.approx([fmean(values) for _, values in expected])
    assert found.greatest == [max(values) for _, values in expected]


def test_points_are_no_more_than_a_plot_has_pixels_however_long_the_time_is():
    for span_us in (1, 7, POINTS - 1, POINTS, POINTS * 3 + 1, 365 * 86_400_000_000):
        sums = Sums(1000, 1000 + span_us)
        assert sums.series().time_s == []
        sums.add(np.array([1000, 1000 + span_us - 1]), np.array([1.0, 2.0]))
        assert 1 <= len(sums.series().time_s) <= 2


async def test_latest_reading_of_each_metric_is_the_newest_whatever_its_kind(reader, tables):
    rows = [
        reading(-10, 1.0),
        reading(-5, None, text="open"),
        reading(-7, 3.0),
        reading(-9, 4.0, metric="n", unit="V"),
        reading(-1, 5.0, device="e"),
    ]
    tables["readings"].append(len(rows), DAY, lambda n: rows[n])
    found = await reader.latest("d", NOW)
    assert [(each["metric"], each["value"], each["text"], each["unit"]) for each in found] == [
        ("m", None, "open", "Cel"),
        ("n", 4.0, None, "V"),
    ]
    assert await reader.latest("nobody", NOW) == []


async def test_newest_events_have_their_bytes(reader, tables):
    days = [DAY - timedelta(days=20), DAY]
    for day in days:
        tables["events"].append(30, day, lambda n: {"device": "d" if n % 2 else "e", "data": b"%d" % n, "outcome": "dead"})
    found = await reader.events("d", 3, NOW)
    assert [(each["data"], each["outcome"]) for each in found] == [(b"59", "dead"), (b"57", "dead"), (b"55", "dead")]
    assert [each["data"] for each in await reader.events("d", 100, NOW)] == [b"%d" % n for n in range(59, 30, -2)]


async def test_commits_that_come_later_are_read_by_the_next_question(reader, tables):
    for count in (1, 2, 3):
        tables["events"].append(1, DAY, lambda _: {"device": "d"})
        assert len(await reader.events("d", 10, NOW)) == count


async def test_a_table_that_is_not_there_is_said_in_one_sentence(reader):
    with pytest.raises(Problem, match="the tables cannot be read") as problem:
        await reader.latest("d", NOW)
    assert problem.value.status == 503


async def test_questions_that_wait_and_their_time_are_bounded(reader, tables, monkeypatch):
    tables["events"].append(1, DAY, lambda _: {"device": "d"})
    monkeypatch.setattr(one_thread, "MAX_WAITING", 0)
    with pytest.raises(Problem, match="wait"):
        await reader.events("d", 10, NOW)
    monkeypatch.setattr(one_thread, "MAX_WAITING", 1)
    monkeypatch.setattr(one_thread, "LIMIT_S", -1.0)
    with pytest.raises(Problem, match="ask for less"):
        await reader.events("d", 10, NOW)
