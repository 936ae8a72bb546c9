"""Counts by rule are saved with the transaction of the counted events, and travel in the stream's statements."""

import sqlite3
from contextlib import closing
from pathlib import Path

from edge.outbox.stores import copy_file, open_store, roll_back, rows, take
from fogline.events.codec import decode_event
from fogline.events.event import Lane
from fogline.gateway.ledger import RuleOutcome, decode_statement, total_by_rule
from fogline_edge.machine.boot import moment
from fogline_edge.operate.status import read_status
from fogline_edge.outbox.file.data_folder import RunEnd
from fogline_edge.outbox.rows.group import Group
from fogline_edge.outbox.salvage.integrity import examine
from fogline_edge.outbox.writer.store import OutboxStore
from fogline_lab.events import make_arrival


def count(store: OutboxStore, rule: str, outcome: RuleOutcome, times: int = 1) -> None:
    with store.transaction():
        for _ in range(times):
            store.streams.count_rule(store.streams.of_lane(Lane.TELEMETRY), rule, outcome)


def counted(store: OutboxStore) -> dict[str, dict[str, int]]:
    return total_by_rule(each.counts.rules for each in store.streams.everything())


def test_counts_by_rule_survive_a_kill_after_the_commit(tmp_path: Path) -> None:
    store = open_store(tmp_path / "outbox.db")
    take(store, make_arrival(1))
    count(store, "press", RuleOutcome.IDENTIFIED, 3)
    count(store, "press", RuleOutcome.DUPLICATE)
    killed = copy_file(tmp_path / "outbox.db", tmp_path / "killed")
    assert counted(open_store(killed)) == {"press": {"identified": 3, "duplicate": 1}}


def test_counts_by_rule_of_a_transaction_that_failed_are_gone(tmp_path: Path) -> None:
    store = open_store(tmp_path / "outbox.db")
    take(store, make_arrival(1))
    count(store, "press", RuleOutcome.IDENTIFIED)
    stream = store.streams.of_lane(Lane.TELEMETRY)
    roll_back(store, lambda: store.streams.count_rule(stream, "press", RuleOutcome.IDENTIFIED), store.save)
    assert counted(store) == {"press": {"identified": 1}}


def test_statement_has_the_counts_by_rule(tmp_path: Path) -> None:
    store = open_store(tmp_path / "outbox.db")
    take(store, make_arrival(1))
    count(store, "press", RuleOutcome.MARKED, 2)
    with store.transaction():
        group = Group(0)
        stream = store.streams.of_lane(Lane.TELEMETRY)
        store.ingest.append_statement(group, stream, moment(store.clock))
        store.ingest.write(group)
    last = rows(store, stream)[-1]
    assert decode_statement(decode_event(last.body).data).counts.rules == {"press": {"marked": 2}}


def test_status_adds_the_counts_of_all_streams(tmp_path: Path) -> None:
    store = open_store(tmp_path / "outbox.db")
    with closing(sqlite3.connect(tmp_path / "outbox.db")) as connection:
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('gateway', 'gw-1')")
        connection.commit()
    with store.transaction():
        for lane in (Lane.TELEMETRY, Lane.ALARM):
            store.streams.count_rule(store.streams.of_lane(lane), "press", RuleOutcome.CONFLICT)
    status = read_status(tmp_path)
    assert status["rules"] == {"press": {"conflict": 2}}
    assert [each["rules"] for each in status["streams"]] == [{"press": {"conflict": 1}}] * 2


def test_counts_by_rule_that_cannot_be_read_are_damage(tmp_path: Path) -> None:
    store = open_store(tmp_path / "outbox.db")
    count(store, "press", RuleOutcome.CONFLICT)
    store.connection.execute("UPDATE stream SET rules = '{\"press\": 1}'")
    store.connection.close()
    assert examine(tmp_path / "outbox.db", last=RunEnd.CLOSING, owner=None) == "a row of stream makes no sense"
