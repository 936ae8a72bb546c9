"""The check before a deployment: the last events of table `raw`, read by the new parser and by the former one."""

import hashlib
import itertools
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from flows.deployments import ACME, deploy, parser_folder, reads
from fogline.events.event import Event, Lane, TimeQuality
from fogline.events.large_body import CHUNK_CONTENT_TYPE, BodyChunk, BodyRef
from fogline_cloud.flows.bodies.body_folder import BodyFolder, bodies_in
from fogline_cloud.flows.deployed.parser_log import ParserLog
from fogline_cloud.flows.deployed.parser_set import with_parser
from fogline_cloud.flows.tables.schema import RAW_STORED
from fogline_cloud.kafka import records
from fogline_cloud.parser_kit import deploying
from fogline_cloud.parser_kit.deploying import run_check
from fogline_cloud.parser_kit.packing import wheel_of
from fogline_cloud.parser_kit.parser_check import CheckRequest, ParserCheck, ValueChange
from fogline_cloud.settings import CloudSettings, FlowSettings

_numbers = itertools.count(1)


def sent(body: bytes, content_type: str, dataref: str | None = None) -> Event:
    """Return an event as its gateway sends it."""
    number = next(_numbers)
    return Event(
        id=f"ID-{number}",
        tenant="t",
        device="d-1",
        type="telemetry",
        subject="air",
        recordedtime="2026-01-02T03:04:05.000006Z",
        content_type=content_type,
        data=body,
        gateway="gw-1",
        stream="00000000000000aa",
        sequence=number,
        lane=Lane.TELEMETRY,
        timequality=TimeQuality.SYNCED,
        dedup="strong",
        adapter="mqtt",
        dataref=dataref,
    )


def raw_row(event: Event) -> dict[str, object]:
    """Return its row of `raw`."""
    number, record = event.sequence, records.record_of(event)
    headers = [{"key": name, "value": value} for name, value in record.headers]
    position = {"topic": "topic", "partition": 0, "offset": number, "ingested": 1_767_323_045_000_000 + number}
    run = {"topic_id": "id", "tenant": "t", "flow": "main", "run": "uuid", "batch": number}
    return {**position, "value": record.value, "headers": headers, **run}


class Team:
    """Checks a parser as the API does before a deployment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings = CloudSettings(tenant="t", flow=FlowSettings(tables=str(folder / "tables")))
        self.log = ParserLog(self.settings)

    def has_sent(self, *bodies: bytes, content_type: str = ACME) -> None:
        """Add rows to `raw`, in a file of their own."""
        self.has_in_raw([sent(body, content_type) for body in bodies])

    def has_in_raw(self, events: list[Event]) -> None:
        rows = pa.Table.from_pylist([raw_row(event) for event in events], RAW_STORED)
        rows = rows.append_column("day", pa.array(["2026-01-02"] * len(rows)).cast(pa.date32()))
        write_deltalake(self.folder / "tables" / "raw", rows, mode="append", partition_by=["day"])

    async def check(self, folder: Path, *, accept_dead: bool = False) -> ParserCheck:
        digest, newest = self.log.put_file(wheel_of(folder)), self.log.newest()
        assert newest is not None
        return await run_check(
            CheckRequest(self.settings, "acme", with_parser(newest.set, "acme", digest, (), accept_dead=accept_dead))
        )


@pytest.fixture
def team(tmp_path: Path) -> Team:
    made = Team(tmp_path)
    deploy(made.log, parser_folder(tmp_path / "former", reads("t")))
    return made


async def test_check_shows_values_that_came_went_and_changed(team: Team, tmp_path: Path) -> None:
    team.has_sent(*[b"%d" % number for number in range(30)])
    team.has_sent(b"5", content_type="text/plain")
    source = """
        def parse(event):
            value = float(event.data)
            if value >= 10:
                yield Reading("t", value if value < 20 else -value)
            yield Reading("u", value)
    """
    found = await team.check(parser_folder(tmp_path / "new", source))
    assert found.problems == []
    assert (found.recent, found.former) == ({"ok": 30}, {"ok": 30})
    assert set(found.changes) == {ValueChange("u", "came", 30), ValueChange("t", "went", 10), ValueChange("t", "changed", 10)}


async def test_parser_that_takes_large_bodies_reads_those_of_the_last_events(team: Team, tmp_path: Path) -> None:
    body, name = b"x" * 300_000, "0f" * 16
    ref = str(BodyRef(name, 1, len(body), hashlib.sha256(body).hexdigest()))
    events = [sent(body, CHUNK_CONTENT_TYPE, str(BodyChunk(name, 0))), sent(b"", ACME, ref)]
    BodyFolder(bodies_in(team.settings.flow.tables, {})).keep(events)
    team.has_in_raw(events)
    source = """
        def parse(event):
            yield Reading("bytes", len(event.body()))

        parse.large_bodies = True
    """
    found = await team.check(parser_folder(tmp_path / "new", source))
    assert (found.recent, found.former, found.problems) == ({"ok": 1}, {"skip": 1}, [])


async def test_parser_that_reads_less_than_the_former_one_fails_unless_that_is_meant(team: Team, tmp_path: Path) -> None:
    team.has_sent(*[b"%d" % number for number in range(30)])
    source = """
        def parse(event):
            if event.data == b"7":
                raise Poison("odd", "seven")
            yield Reading("t", float(event.data))
    """
    folder = parser_folder(tmp_path / "new", source)
    found = await team.check(folder)
    assert found.recent == {"ok": 29, "dead": 1}
    (problem,) = found.problems
    assert "of the last 30 events only the former parser reads 1; the first is dead (odd): seven" in problem
    assert (await team.check(folder, accept_dead=True)).problems == []


async def test_wheel_that_needs_what_is_not_installed_fails(team: Team, tmp_path: Path) -> None:
    folder = parser_folder(tmp_path / "new", reads("t"))
    project = folder / "pyproject.toml"
    project.write_text(project.read_text().replace('version = "1"', 'version = "1"\ndependencies = ["no-such-package>=2"]'))
    assert "it requires no-such-package>=2, which is not installed" in (await team.check(folder)).problems[0]


async def test_without_table_raw_nothing_is_compared(team: Team, tmp_path: Path) -> None:
    found = await team.check(parser_folder(tmp_path / "new", reads("new")))
    assert (found.problems, found.recent) == ([], {})


async def test_check_that_does_not_end_is_ended(team: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deploying, "LIMIT_S", 0.2)
    found = await team.check(parser_folder(tmp_path / "new", "while True:\n    pass"))
    assert found.problems == ["the check did not end within 0 s"]
