"""Someone damages Kafka or the tables: `fogline ledger verify` says what, by gateway, stream and range, in one line each.

One tenant's true topics and tables are made once. Damage to a table is done to a copy of the tables, damage to a topic to
a copy of the topics, which belongs to a tenant of its own.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import TopicPartition

from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.kafka.committed_records import CommittedRecord
from fogline_cloud.kafka.records import position_of
from fogline_lab.ledger_site import AIR, ALARMS, NOBODYS, SHARDS, YARD, LedgerSite, make_site
from sampling import a_few


@pytest.fixture(scope="module")
def original(kafka, tmp_path_factory) -> LedgerSite:
    return make_site(kafka.bootstrap, tmp_path_factory.mktemp("ledger") / "tables")


# --- what the ledger says


@dataclass(frozen=True)
class Said:
    """Facts on which both forms of the command agree: exit status, findings by kind, gateway, lane, stream and range."""

    status: int
    lines: list[str]


def verify(site: LedgerSite, folder: Path) -> Said:
    """Run the real command in both forms; the JSON must say the same as the text."""
    config = folder / "cloud.toml"
    config.write_text(
        f'tenant = "{site.settings.tenant}"\nshards = {SHARDS}\n'
        f'[kafka]\n"bootstrap.servers" = "{site.settings.kafka["bootstrap.servers"]}"\n[flow]\ntables = "{site.tables}"\n'
    )
    fogline = str(Path(sys.executable).with_name("fogline"))
    command = [fogline, "ledger", "verify", "--config", str(config), "--silent", "3650d"]  # the events are old
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": {**os.environ, "COLUMNS": "80"}}
    with subprocess.Popen(command, **pipes) as text, subprocess.Popen([*command, "--json"], **pipes) as told:
        (out, err), (as_json, _) = text.communicate(timeout=120), told.communicate(timeout=120)
    assert out, err
    assert text.returncode == told.returncode
    lines = out.splitlines()
    end = next(number for number, line in enumerate(lines) if line.startswith("the ledger "))
    *shown, read, verdict = lines[: end + 1]
    assert read.startswith("read: tables ")
    found = json.loads(as_json)
    findings = [f"{each['kind']} {each['text']}" for each in found["findings"]]
    explained = [
        f"explained {each['gateway']} {each['lane']} {each['stream']}: "
        f"{loss['first']}..{loss['last']}: {loss['reason']}: {loss['detail']}"
        for each in found["streams"]
        for loss in each["losses"]
    ]
    said = [line for line in shown[len(found["streams"]) + 1 :] if not line.startswith("read again: ")]
    assert said == explained + findings
    assert found["balances"] == (not findings) == (verdict == "the ledger balances")
    for each in found["findings"]:
        ranges = ", ".join(str(first) if first == last else f"{first}..{last}" for first, last in each["spans"])
        assert f"{each['gateway']} " in each["text"]
        assert f" {each['stream']}: {ranges}: " in each["text"]
    return Said(text.returncode, [line.rpartition(": ")[0] for line in findings])


def test_ledger_of_untouched_copies_balances(original, folder):
    assert verify(original, folder) == Said(0, [])


@pytest.mark.slow
def test_the_ledger_of_an_untouched_copy_balances(original, folder):
    assert verify(original.with_topics(lambda records: records), folder) == Said(0, [])


# --- damage to the tables


def row_is_deleted(site):
    for table in ("events", "readings"):
        site.delete(table, AIR, 17, 17)


def row_is_deleted_from_events_only(site):
    site.delete("events", YARD, 5, 7)


def row_is_doubled(site):
    site.append("events", site.rows("events", ALARMS, 9))


def row_of_a_gap_is_deleted(site):
    site.delete("events", AIR, 43, 43)


def rows_of_nobody(site):
    """More than the gateway ever sent, and a stream that Kafka does not know."""
    (row,) = site.rows("events", YARD, 30)
    beyond = [{**row, "id": f"{YARD}.{n}", "first_sequence": n, "sequence": n, "readings": []} for n in (32, 33)]
    nobodys = {"id": f"{NOBODYS}.1", "gateway": "gw-9", "stream": NOBODYS, "first_sequence": 1, "sequence": 1}
    site.append("events", [*beyond, {**beyond[0], **nobodys}])


def readings_are_damaged(site):
    """One is deleted, one doubled, one doubled in another's place, and one belongs to nothing."""
    site.delete("readings", AIR, 3, 3, "ordinal = 1")
    site.append("readings", site.rows("readings", AIR, 8)[:1])
    site.delete("readings", AIR, 12, 12, "ordinal = 1")
    first, *_ = site.rows("readings", AIR, 12)
    site.append("readings", [first, {**first, "gateway": "gw-9", "stream": NOBODYS, "sequence": 4}])


DAMAGED_TABLES = {
    row_is_deleted: [f"table-missing gw-1 telemetry {AIR}: 17"],
    row_is_deleted_from_events_only: [f"table-missing gw-2 telemetry {YARD}: 5..7"],
    row_is_doubled: [f"table-double gw-1 alarm {ALARMS}: 9"],
    row_of_a_gap_is_deleted: [f"table-missing gw-1 telemetry {AIR}: 41..43"],
    rows_of_nobody: [f"phantom gw-2 telemetry {YARD}: 32..33", f"phantom gw-9 telemetry {NOBODYS}: 1"],
    readings_are_damaged: [
        f"readings-missing gw-1 telemetry {AIR}: 3, 12",
        f"readings-double gw-1 telemetry {AIR}: 8, 12",
        f"readings-phantom gw-9 unknown {NOBODYS}: 4",
    ],
}


@pytest.mark.parametrize(
    ("damage", "lines"),
    a_few(DAMAGED_TABLES.items(), (row_is_deleted, DAMAGED_TABLES[row_is_deleted])),
    ids=[each.__name__ for each in DAMAGED_TABLES],
)
def test_the_ledger_names_damage_to_the_tables(original, folder, damage, lines):
    site = original.with_tables(folder)
    assert verify(site, folder) == Said(0, [])  # its marks come before the damage
    damage(site)
    assert verify(site, folder) == Said(1, DAMAGED_TABLES[damage])


# --- damage to a topic


def place(record: CommittedRecord) -> tuple[str, int]:
    found = position_of(record.headers, record.value)
    return found.stream, found.last


def range_is_missing(records):
    return [each for each in records if place(each) not in {(AIR, n) for n in range(11, 21)}]


def beginning_is_missing(records):
    return [each for each in records if place(each) not in {(ALARMS, n) for n in range(1, 6)}]


def end_is_missing(records):
    return [each for each in records if place(each) not in {(YARD, 30), (YARD, 31)}]


def record_is_doubled(records):
    return [each for each in records for _ in range(2 if place(each) == (ALARMS, 7) else 1)]


def phantom_at_a_number_that_was_given(records):
    """Someone else's payload, at the place of an event that the gateway did send."""
    (model,) = [each for each in records if place(each) == (YARD, 12)]
    return [*records, msgspec.structs.replace(model, value=b'{"temperature": 99}')]


DAMAGED_TOPIC = {
    range_is_missing: [f"phantom gw-1 telemetry {AIR}: 11..20"],
    beginning_is_missing: [f"phantom gw-1 alarm {ALARMS}: 1..5"],
    end_is_missing: [f"phantom gw-2 telemetry {YARD}: 30..31"],
    record_is_doubled: [f"kafka-double gw-1 alarm {ALARMS}: 7"],
    phantom_at_a_number_that_was_given: [f"kafka-double gw-2 telemetry {YARD}: 12"],
}


@pytest.mark.parametrize(
    ("damage", "lines"),
    a_few(DAMAGED_TOPIC.items(), (record_is_doubled, DAMAGED_TOPIC[record_is_doubled])),
    ids=[each.__name__ for each in DAMAGED_TOPIC],
)
def test_the_ledger_names_damage_to_a_topic(original, folder, damage, lines):
    assert verify(original.with_topics(damage), folder) == Said(1, lines)


def test_ledger_knows_records_deleted_by_retention(original, folder):
    """Rows in the table are no phantoms, and missing rows are lost."""
    site = replace(original.with_topics(lambda records: records), tables=folder / "tables")
    site.fill()
    (kept,) = site.rows("events", AIR, 31)
    admin = KafkaClients(site.settings.kafka).admin()
    for future in admin.delete_records([TopicPartition(kept["topic"], kept["partition"], kept["offset"])]).values():
        future.result(60)
    assert verify(site, folder) == Said(0, [])
    site.delete("events", AIR, 4, 4)
    site.delete("readings", AIR, 4, 4)
    assert verify(site, folder) == Said(1, [f"lost gw-1 telemetry {AIR}: 4"])


def test_ledger_names_sequences_missing_from_both(original, folder):
    site = original.with_tables(folder)
    site.delete("events", AIR, 11, 20)
    site.delete("readings", AIR, 11, 20)
    assert verify(site.with_topics(range_is_missing), folder) == Said(1, [f"lost gw-1 telemetry {AIR}: 11..20"])
