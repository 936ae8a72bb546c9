"""The ledger reads the rows that came after its marks, and finds what it would find in all rows."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from fogline_cloud.ledger import sources
from fogline_cloud.ledger.balance import judge
from fogline_cloud.ledger.evidence import EvidenceReader
from fogline_cloud.ledger.marked_tables import MarkedTables, TablesRead
from fogline_cloud.ledger.marks import (
    FORMAT,
    DayMarks,
    EvidenceMarks,
    LedgerMarks,
    ReadingMarks,
    StreamMarks,
    decode_marks,
    encode_marks,
)
from fogline_cloud.ledger.readings import ReadingSums
from fogline_cloud.settings import CloudSettings, FlowSettings

DAYS = ("2026-11-01", "2026-11-02", "2026-11-03")
KINDS = {"lost", "table-double", "readings-missing", "readings-double", "readings-phantom"}
ORDINALS = pa.list_(pa.struct([("ordinal", pa.int64())]))
TEXTS = ("tenant", "topic", "gateway", "stream", "lane", "outcome", "reason", "detail", "day", "device")
NUMBERS = ("partition", "offset", "first_sequence", "sequence", "ordinal")
TYPES = {**dict.fromkeys(TEXTS, pa.string()), **dict.fromkeys(NUMBERS, pa.int64()), "readings": ORDINALS}
EVENT_COLUMNS = [name for name in TYPES if name != "ordinal"]
READING_COLUMNS = ["gateway", "stream", "sequence", "ordinal", "day", "device"]


class Tables:
    """Both tables, as a flow would write them, without Kafka."""

    def __init__(self, folder) -> None:
        self.folder = folder

    def table(self, name) -> DeltaTable:
        return DeltaTable(self.folder / name)

    @property
    def marks(self):
        return self.folder / "events" / "_ledger" / "t.json.xz"

    def append(self, name, rows) -> None:
        names = EVENT_COLUMNS if name == "events" else READING_COLUMNS
        table = pa.Table.from_pylist(rows, pa.schema([(each, TYPES[each]) for each in names]))
        write_deltalake(self.folder / name, table, mode="append", partition_by=["day"])

    def events(self, day, *sequences, stream="s", **more) -> None:
        place = {"topic": "x", "partition": 0, "gateway": "g", "stream": stream, "lane": "telemetry", "outcome": "ok"}
        self.append(
            "events",
            [
                {
                    **place,
                    "first_sequence": n,
                    "sequence": n,
                    "offset": 100 + n,
                    "day": day,
                    "readings": [{"ordinal": 0}],
                    **more,
                }
                for n in sequences
            ],
        )

    def readings(self, day, *sequences, stream="s") -> None:
        self.append(
            "readings", [{"gateway": "g", "stream": stream, "sequence": n, "ordinal": 0, "day": day} for n in sequences]
        )

    def land(self, day, *sequences, stream="s") -> None:
        self.events(day, *sequences, stream=stream)
        self.readings(day, *sequences, stream=stream)

    def compact(self, day) -> None:
        for name in ("events", "readings"):
            self.table(name).optimize.compact(partition_filters=[("day", "=", day)])

    def verify(self, tenant="t", *, full=False, low=None):
        """The findings about the tables alone, and how they were read."""
        flow = FlowSettings(tables=str(self.folder))
        settings = CloudSettings(tenant=tenant, kafka={"bootstrap.servers": "x"}, flow=flow)
        reader, sums, tables = EvidenceReader(tenant, low or {}), ReadingSums(), MarkedTables(settings)
        tables.read(reader, sums, full=full)
        evidence = reader.finish()
        sources._add_readings(evidence, sums, reader, tables)
        found = sorted((each.stream, each.kind, each.spans) for stream in evidence for each in judge(stream))
        return [each for each in found if each[1] in KINDS], tables.summary

    def again(self) -> TablesRead:
        """Verify, and compare with a ledger that reads all rows and has no marks (rows without a tenant are anybody's)."""
        found, summary = self.verify()
        assert found == self.verify("other", full=True)[0]
        checked, full = self.verify(full=True)
        assert (checked, full.wrong) == (found, [])
        return summary


@pytest.fixture
def tables(folder) -> Tables:
    made = Tables(folder)
    made.land(DAYS[0], *range(1, 11))
    made.land(DAYS[1], *range(11, 21))
    found, summary = made.verify()
    assert (found, summary.full, summary.rows, summary.known) == ([], True, 40, 0)
    return made


def test_second_run_reads_new_files_only(tables):
    assert tables.again().rows == 0
    tables.land(DAYS[1], 21, 22)
    tables.land(DAYS[2], 23)
    summary = tables.again()
    assert (summary.full, summary.rows, summary.known, summary.again) == (False, 6, 40, [])


def test_loss_and_duplicates_after_the_mark_are_found(tables):
    tables.land(DAYS[2], 21, 22, 24, 24, 25)
    tables.readings(DAYS[2], 25)
    tables.events(DAYS[2], 26)
    found, _ = tables.verify()
    expected = [("lost", [(23, 23)]), ("readings-double", [(24, 25)]), ("readings-missing", [(26, 26)])]
    assert found == [("s", *each) for each in [*expected, ("table-double", [(24, 24)])]]
    assert not tables.again().full


def test_loss_and_duplicates_across_the_mark_are_found(tables):
    """Sequence 5 comes again, 21 never does, and the readings of 23 come in a later run, on another day."""
    tables.events(DAYS[2], 5, 22, 23)
    tables.readings(DAYS[2], 22)
    expected = [("lost", [(21, 21)]), ("readings-missing", [(23, 23)]), ("table-double", [(5, 5)])]
    assert tables.verify()[0] == [("s", *each) for each in expected]
    tables.readings(DAYS[1], 23)
    tables.land(DAYS[2], 24)
    found, summary = tables.verify()
    assert found == [("s", "lost", [(21, 21)]), ("s", "table-double", [(5, 5)])]
    assert not summary.full
    tables.events(DAYS[2], 21)
    assert ("s", "readings-missing", [(21, 21)]) in tables.verify()[0], "a late one closes the hole"
    tables.again()


def test_a_finding_stays_until_it_is_mended(tables):
    tables.events(DAYS[2], 22, 22)
    first = tables.verify()[0]
    assert {kind for _, kind, _ in first} == {"lost", "table-double", "readings-missing"}
    assert tables.verify()[0] == first


def test_compacted_files_are_not_read_again(tables):
    """Also files that were compacted, with old ones, before the ledger had read them."""
    tables.land(DAYS[1], 21)
    tables.verify()
    tables.compact(DAYS[1])
    assert tables.again().rows == 0
    tables.land(DAYS[1], 22, 24)
    tables.compact(DAYS[1])
    tables.land(DAYS[1], 25, 25)
    found, summary = tables.verify()
    assert [each[1] for each in found] == ["lost", "table-double"]
    assert (summary.rows, summary.known, summary.again) == (8, 42, [])
    tables.again()


def test_a_compaction_that_loses_rows_is_found(tables):
    """Somebody's compaction says that it changes no row."""
    tables.land(DAYS[1], 21)
    tables.verify()
    tables.compact(DAYS[1])
    log = max((tables.folder / "events" / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    (added,) = (each["add"] for each in actions if "add" in each)
    path = tables.folder / "events" / added["path"]
    rows = pq.read_table(path, partitioning=None)
    pq.write_table(rows.slice(0, 9), path)
    added["size"], added["stats"] = path.stat().st_size, json.dumps({"numRecords": 9})
    log.write_text("\n".join(map(json.dumps, actions)))
    found, summary = tables.verify()
    assert [each[1] for each in found] == ["lost", "readings-phantom"]
    assert summary.again == [f"{DAYS[1]}: a compacted file has not the rows of its files"]


def test_files_that_were_deleted_after_their_compaction_are_read_in_its_result(tables):
    tables.land(DAYS[1], 21)
    tables.compact(DAYS[1])
    for name in ("events", "readings"):
        tables.table(name).vacuum(0, dry_run=False, enforce_retention_duration=False)
    summary = tables.again()
    assert summary.again == [f"{DAYS[1]}: files were compacted and deleted before they were read"]
    assert summary.known == 20


def test_rows_that_are_replaced_are_read_again(tables):
    """`table forget` and `flow replay` write the files of a day again."""
    tables.table("events").update({"device": "NULL"}, predicate=f"day = '{DAYS[0]}' AND sequence < 5")
    summary = tables.again()
    assert (summary.rows, summary.known, summary.again) == (20, 20, [f"{DAYS[0]}: rows were replaced or deleted"])
    tables.table("events").delete(f"day = '{DAYS[0]}' AND sequence = 3")
    assert [each[1] for each in tables.verify()[0]] == ["lost", "readings-phantom"]
    tables.again()


def test_days_that_retention_deletes_are_no_rows_of_the_marks(tables):
    """And a hole stays one, though the day before it is gone."""
    tables.land(DAYS[2], 22)
    for name in ("events", "readings"):
        tables.table(name).delete(f"day < '{DAYS[1]}'")
    found, summary = tables.verify()
    assert (summary.rows, summary.known, summary.again) == (2, 20, [])
    assert found == [("s", "lost", [(1, 10), (21, 21)])], "without `keep_days`, the deleted ones count"
    tables.again()


def test_a_log_that_was_cut_off_leads_to_days_that_are_read_again(tables):
    tables.compact(DAYS[1])
    tables.land(DAYS[1], 21)
    tables.compact(DAYS[1])
    for name in ("events", "readings"):
        tables.table(name).create_checkpoint()
        for each in sorted((tables.folder / name / "_delta_log").glob("*.json"))[:-1]:
            each.unlink()
    summary = tables.again()
    assert (summary.full, summary.known) == (False, 20)
    assert summary.again == [f"{DAYS[1]}: the log does not say any more why files are gone"]


def test_marks_of_another_table_are_not_used(tables):
    marks = tables.marks.read_bytes()
    shutil.rmtree(tables.folder / "events")
    tables.events(DAYS[0], 1, 2)
    tables.marks.parent.mkdir()
    tables.marks.write_bytes(marks)
    summary = tables.again()
    assert (summary.full, summary.again) == (True, ["the marks cannot be used: table events is another one now: all days"])


def test_marks_of_other_columns_are_not_used(tables):
    wider = pa.schema([("day", pa.string()), ("lane", pa.string()), ("tenant", pa.string()), ("values", pa.int64())])
    write_deltalake(tables.folder / "events", wider.empty_table(), mode="append", schema_mode="merge")
    assert tables.again().again == ["the marks cannot be used: columns of table events have changed: all days"]


@pytest.mark.parametrize("damage", [lambda data: data[:-20], lambda data: data[:99] + b"x" + data[100:], lambda _: b""])
def test_damaged_marks_are_not_used(tables, damage):
    tables.marks.write_bytes(damage(tables.marks.read_bytes()))
    summary = tables.again()
    assert summary.full
    assert "the marks cannot be used: they are damaged" in summary.again[0]


def test_wrong_marks_are_found_by_a_full_run(tables):
    """Here they say of the first day what the second one has."""
    marks = decode_marks(tables.marks.read_bytes(), LedgerMarks)
    days = {**marks.days, DAYS[0]: msgspec.structs.replace(marks.days[DAYS[1]], files=marks.days[DAYS[0]].files)}
    tables.marks.write_bytes(encode_marks(msgspec.structs.replace(marks, days=days)))
    found, summary = tables.verify(full=True)
    assert (found, summary.again, summary.wrong) == ([], [], [DAYS[0]])
    assert tables.verify(full=True)[1].wrong == []


def test_a_kill_while_marks_are_written_leaves_the_former_ones(tables):
    tables.land(DAYS[2], 22)
    program = (
        "import os, signal, sys; from fogline_cloud.ledger import marked_tables as m\n"
        "from fogline_cloud.flows.tables.files import TableFolder\n"
        "out = TableFolder(sys.argv[1]).file_system().open_output_stream(sys.argv[2], buffer_size=20_000_001)\n"
        "out.write(b'x' * 20_000_000); out.flush(); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    command = [sys.executable, "-c", program, str(tables.folder / "events"), "_ledger/t.json.xz"]
    killed = subprocess.run(command, check=False, timeout=60, env=os.environ)
    assert killed.returncode == -signal.SIGKILL
    found, summary = tables.verify()
    assert (found, summary.rows, summary.known) == ([("s", "lost", [(21, 21)])], 2, 40)
    tables.again()


def test_an_accepted_gap_leads_to_a_full_read(tables):
    """It explains sequences whose neighbours are in rows that the marks stand for."""
    tables.land(DAYS[2], 25)
    nobody = {"gateway": None, "stream": None, "first_sequence": None, "sequence": None, "readings": None}
    tables.events(DAYS[2], 0, **{**nobody, "offset": 124, "outcome": "gap", "reason": "retention"})
    found, summary = tables.verify()
    assert (found, summary.full) == ([], True)
    assert summary.again == ["a gap by retention was accepted: all days"]
    tables.land(DAYS[2], 26)
    assert (tables.verify()[0], tables.again().full) == ([], False)


def test_rows_that_kafka_deleted_are_known_from_the_marks(tables):
    """Kafka begins at offset 112 (sequence 12): the first day is deleted, the second one as far as its records tell."""
    reader, full = (EvidenceReader("t", {("x", 0): 112}) for _ in range(2))
    flow = FlowSettings(tables=str(tables.folder))
    settings = CloudSettings(tenant="t", kafka={"bootstrap.servers": "x"}, flow=flow)
    MarkedTables(settings).read(reader, ReadingSums(), full=False)
    MarkedTables(settings).read(full, ReadingSums(), full=True)
    for each in (reader, full):
        each._collected["g", "s"].kafka.add(12, 20)
        (evidence,) = each.finish()
        assert evidence.kafka_from == 12
        assert judge(evidence) == []


@pytest.mark.parametrize("seed", range(4))
def test_any_history_has_the_findings_of_a_full_read(folder, seed):
    rng = random.Random(seed)
    tables = Tables(folder)
    tables.land(DAYS[0], 1, 2)
    for _ in range(14):
        day, stream = rng.choice(DAYS), rng.choice("ab")
        sequences = rng.choices(range(1, 30), k=rng.randrange(1, 6))
        name = rng.choice(("events", "readings"))
        match rng.randrange(8):
            case 0 | 1 | 2:
                tables.land(day, *sequences, stream=stream)
            case 3:
                getattr(tables, name)(day, *sequences, stream=stream)
            case 4 | 5:
                tables.compact(day)
            case 6:
                tables.table(name).delete(f"day = '{day}' AND sequence < {rng.randrange(30)}")
            case 7 if tables.table(name).version():
                tables.table(name).restore(rng.randrange(tables.table(name).version()))
        if rng.random() < 0.6:
            tables.again()
    tables.again()


def test_marks_of_a_month_of_1000_streams_are_small():
    rng = random.Random(1)
    streams = [f"{rng.getrandbits(128):032x}" for _ in range(1000)]
    days = {}
    empty = decode_marks(encode_marks(LedgerMarks(FORMAT, "t", {}, {})), LedgerMarks)
    assert empty.days == {}
    for day in range(30):
        rows = []
        for number, stream in enumerate(streams):
            first = 10_000 * day + rng.randrange(100)
            place = ("fogline.telemetry.acme", number % 8, 50 * first, 50 * first + 499_000, first + 9_990)
            rows.append(StreamMarks(f"gateway-{number:04}", stream, "telemetry", [(first, first + 9_990)], [], [], [place], []))
        days[f"2026-11-{day + 1:02}"] = rows
    size = len(encode_marks(_with(days)))
    assert size < 1_000_000, size


def _with(days):
    made = {day: DayMarks({}, {}, [], EvidenceMarks(rows), ReadingMarks()) for day, rows in days.items()}
    return LedgerMarks(FORMAT, "t", {}, made)
