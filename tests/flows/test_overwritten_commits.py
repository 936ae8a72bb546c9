"""Commits of a flow that another program overwrites, without Spark and Kafka."""

import json
import logging
import time

import pytest
from deltalake import DeltaTable

from flows.flow_log import FIRST, SECOND, batch, files, made_log, made_table, sequences
from fogline.errors import Misconfigured, Unreachable
from fogline_cloud.flows.tables import delta_log
from fogline_cloud.flows.tables.delta_log import DeltaLog
from fogline_cloud.flows.tables.files import TableFolder
from fogline_cloud.flows.tables.own_commits import SETTLED_S


@pytest.fixture
def table(folder) -> TableFolder:
    return made_table(folder)


@pytest.fixture
def log(table) -> DeltaLog:
    return made_log(table)


def overwrite(folder, version, *actions):
    """Write an entry of the log as a program does that looks whether it exists, and then puts it."""
    entry = folder / "events" / "_delta_log" / f"{version:020}.json"
    assert entry.exists()
    entry.write_text("".join(f"{json.dumps(each)}\n" for each in ({"commitInfo": {"operation": "OPTIMIZE"}}, *actions)))


@pytest.fixture
def clock(monkeypatch):
    """Seconds of the steady clock, which a test sets."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


@pytest.mark.fault("K12")
def test_a_commit_that_another_program_overwrote_is_repeated_and_named(table, log, folder, caplog):
    log.append(files(table, 1, 2), batch(FIRST, 0), FIRST)
    log.append(files(table, 3, 4, 5), batch(FIRST, 1), FIRST)
    overwrite(folder, 3)
    assert sequences(table) == [1, 2]

    with caplog.at_level(logging.ERROR):
        log.append(files(table, 6), batch(FIRST, 2), FIRST)

    assert sequences(table) == [1, 2, 3, 4, 5, 6]
    assert log.newest(batch(FIRST, 0)) == 2
    assert "overwritten version 3 of the table, and so removed batch 1 (3 rows of 1970-01-01" in caplog.text


@pytest.mark.fault("K12")
def test_an_overwritten_takeover_is_repeated(table, log, folder, caplog):
    overwrite(folder, 1)
    log.append(files(table, 1), batch(FIRST, 0), FIRST)
    assert sequences(table) == [1]
    assert "the start of the flow (0 rows)" in caplog.text


@pytest.mark.fault("K12")
def test_a_commit_that_was_overwritten_late_is_repeated(table, clock, folder):
    log = DeltaLog("events", table)
    log.take_over(FIRST, {})
    for number in range(3):
        log.append(files(table, number), batch(FIRST, number), FIRST)
    overwrite(folder, 3)

    log.append(files(table, 3), batch(FIRST, 3), FIRST)
    assert sequences(table) == [0, 2, 3], "it was read back already, when batch 2 came"
    clock[0] += SETTLED_S
    log.append(files(table, 4), batch(FIRST, 4), FIRST)

    assert sequences(table) == [0, 1, 2, 3, 4]
    assert log.newest(batch(FIRST, 0)) == 4


@pytest.mark.fault("K12")
def test_rows_that_a_later_commit_compacted_are_not_repeated(table, log, folder):
    log.append(files(table, 1, 2), batch(FIRST, 0), FIRST)
    log.append(files(table, 3), batch(FIRST, 1), FIRST)
    user = DeltaTable(table.uri)
    user.optimize.compact()
    overwrite(folder, 3)

    log.append(files(table, 4), batch(FIRST, 2), FIRST)

    assert sequences(table) == [1, 2, 3, 4]


@pytest.mark.fault("K12")
def test_an_overwritten_commit_whose_files_are_gone_stops_the_flow(table, log, folder):
    (file,) = written = files(table, 1)
    log.append(written, batch(FIRST, 0), FIRST)
    overwrite(folder, 2)
    (folder / "events" / file.path).unlink()

    with pytest.raises(Misconfigured, match=r"version 2 .* removed batch 0 \(1 rows of 1970-01-01.*`fogline flow replay`"):
        log.append(files(table, 2), batch(FIRST, 1), FIRST)


def test_a_restore_that_overwrote_a_commit_stops_the_flow(table, log, folder):
    log.append(files(table, 1), batch(FIRST, 0), FIRST)
    log.append(files(table, 2), batch(FIRST, 1), FIRST)
    overwrite(folder, 3)
    entry = folder / "events" / "_delta_log" / f"{3:020}.json"
    entry.write_text(entry.read_text().replace("OPTIMIZE", "RESTORE"))

    with pytest.raises(Misconfigured, match="was restored to an earlier version"):
        log.append(files(table, 3), batch(FIRST, 2), FIRST)


def test_a_newer_owner_that_overwrote_a_commit_stops_the_flow(table, log, folder):
    log.append(files(table, 1), batch(FIRST, 0), FIRST)
    marks = dict.fromkeys(SECOND.applications, SECOND.epoch)
    overwrite(folder, 2, *({"txn": {"appId": name, "version": epoch}} for name, epoch in marks.items()))

    with pytest.raises(Misconfigured, match="taken over"):
        log.append(files(table, 2), batch(FIRST, 1), FIRST)


def test_a_log_that_was_cut_off_after_the_last_commit_is_not_taken_for_overwritten(table, log, folder, caplog):
    log.append(files(table, 1), batch(FIRST, 0), FIRST)
    DeltaTable(table.uri).alter.set_table_properties({"delta.logRetentionDuration": "interval 1 days"})
    DeltaTable(table.uri).create_checkpoint()
    for version in range(3):
        (folder / "events" / "_delta_log" / f"{version:020}.json").unlink()

    log.append(files(table, 2), batch(FIRST, 1), FIRST)

    assert sequences(table) == [1, 2]
    assert "overwritten" not in caplog.text


def test_a_commit_whose_repeat_fails_is_repeated_by_the_next_one(table, log, folder, monkeypatch):
    log.append(files(table, 1), batch(FIRST, 0), FIRST)
    overwrite(folder, 2)
    with monkeypatch.context() as away:
        away.setattr(delta_log, "missing_files", lambda *_: (_ for _ in ()).throw(Unreachable("the store is away")))
        with pytest.raises(Unreachable):
            log.append(files(table, 2), batch(FIRST, 1), FIRST)

    log.append(files(table, 2), batch(FIRST, 1), FIRST)

    assert sequences(table) == [1, 2]


@pytest.mark.fault("K12")
def test_a_commit_that_was_overwritten_between_two_queries_of_a_process_is_repeated(table, log, folder, caplog):
    log.append(files(table, 1), batch(FIRST, 0), FIRST)
    log.append(files(table, 2), batch(FIRST, 1), FIRST)
    overwrite(folder, 3)

    later = DeltaLog("events", table, log)
    later.read_back()

    assert later.newest(batch(FIRST, 0)) == 1, "a takeover compares it with the checkpoint"
    assert sequences(table) == [1, 2]
    later.append(files(table, 3), batch(FIRST, 2), FIRST)
    assert sequences(table) == [1, 2, 3]


@pytest.mark.fault("K12")
def test_a_batch_is_compared_with_a_table_that_has_the_overwritten_commit_again(table, log, folder):
    log.append(files(table, 1), batch(FIRST, 0), FIRST)
    overwrite(folder, 2)
    assert log.newest(batch(FIRST, 0)) == -1, "so a batch that is done would be done again"

    log.read_back()

    assert log.newest(batch(FIRST, 0)) == 0


def test_a_restore_that_overwrote_a_commit_between_two_queries_stops_the_flow(table, log, folder):
    log.append(files(table, 1), batch(FIRST, 0), FIRST)
    log.append(files(table, 2), batch(FIRST, 1), FIRST)
    overwrite(folder, 3)
    entry = folder / "events" / "_delta_log" / f"{3:020}.json"
    entry.write_text(entry.read_text().replace("OPTIMIZE", "RESTORE"))

    with pytest.raises(Misconfigured, match="was restored to an earlier version"):
        DeltaLog("events", table, log).read_back()
