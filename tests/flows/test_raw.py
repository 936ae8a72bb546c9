"""Table `raw`, written beside the parsing query, with a real Kafka and a real Spark."""

import os
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from deltalake import DeltaTable

from flows.other_flows import other_flow
from flows.tenant_flow import Flow
from flows.topic_changes import create_again
from fogline.errors import Misconfigured
from fogline.events.event import Lane
from fogline_cloud.flows import job
from fogline_cloud.flows.driver import commit, query, raw_sink
from fogline_cloud.flows.tables import delta_log, schema
from fogline_cloud.kafka import records, topics
from fogline_cloud.kafka.clients import KafkaClients, ids_of

LIMIT_S = 120.0


@pytest.fixture
def raw_flow(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> Flow:
    """The flow with table `raw`."""
    monkeypatch.setattr(job, "CATCH_UP_S", 1)
    flow.settings = msgspec.structs.replace(flow.settings, flow=msgspec.structs.replace(flow.settings.flow, raw_days=90))
    return flow


def bodies(flow: Flow) -> list[bytes]:
    return sorted(row["value"] for row in flow.raw_rows())


def sequences(flow: Flow) -> list[int]:
    return [row["sequence"] for row in flow.rows("events")]


@contextmanager
def raw_killed() -> Iterator[None]:
    """Kill the driver before the commit to `raw`."""
    append = delta_log.DeltaLog.append

    def die(log: delta_log.DeltaLog, *given: object) -> bool:
        if log.table == "raw":
            raise ConnectionResetError("killed before raw")
        return append(log, *given)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delta_log.DeltaLog, "append", die)
        with pytest.raises(Misconfigured, match="killed before raw"):
            yield


def test_table_raw_holds_each_committed_record_byte_for_byte(raw_flow: Flow, make_event) -> None:
    tenant = raw_flow.settings.tenant
    odd = [
        records.KafkaRecord(b"k", b"\x00\xff", [("a", b"1"), ("a", b"2"), ("é", b"\xff"), ("none", None)]),  # type: ignore[list-item]
        records.KafkaRecord(b"k", b"", []),
        records.KafkaRecord(None, None, [("empty", b"")]),  # type: ignore[arg-type]
    ]
    event = make_event(b'{"t": 1}', tenant=tenant, lane=Lane.ALARM)
    raw_flow.land([*odd, event])
    raw_flow.land([make_event(b"aborted", tenant=tenant)], commit=False)

    raw_flow.run()

    rows = raw_flow.raw_rows()
    assert list(rows[0]) == schema.names(schema.RAW)
    alarm, *telemetry = rows
    assert [(row["value"], row["headers"] or []) for row in telemetry] == [
        (record.value, [{"key": key, "value": value} for key, value in record.headers]) for record in odd
    ]
    landed = records.record_of(event)
    assert (alarm["topic"], alarm["value"]) == (topics.event(tenant), landed.value)
    assert alarm["headers"] == [{"key": key, "value": value} for key, value in landed.headers]
    ids = ids_of(KafkaClients(raw_flow.settings.kafka).describe(topics.raw_topics(tenant)))
    assert {(row["topic"], row["topic_id"], row["tenant"], row["flow"]) for row in rows} == {
        (name, ids[name], tenant, "main") for name in (topics.event(tenant), topics.telemetry(tenant))
    }
    positions = {(row["topic"], row["partition"], row["offset"], row["ingested"], row["day"]) for row in rows}
    assert positions == {
        (row["topic"], row["partition"], row["offset"], row["ingested"], row["day"]) for row in raw_flow.rows("events")
    }


@pytest.mark.fault("C6")
def test_each_record_is_in_table_raw_once_over_kills_replays_and_lost_checkpoints(raw_flow: Flow, make_event) -> None:
    raw_flow.land([make_event(b"1"), make_event(b"2")])
    with raw_killed():
        raw_flow.run()
    assert bodies(raw_flow) == []
    raw_flow.run()
    before = raw_flow.raw_rows()
    assert bodies(raw_flow) == [b"1", b"2"]

    for done in (raw_flow.checkpoint / "raw" / "commits").iterdir():
        done.unlink()
    raw_flow.run()
    assert raw_flow.raw_rows() == before, "a batch that Spark has forgotten changes nothing"

    shutil.rmtree(raw_flow.checkpoint / "raw")
    raw_flow.land([make_event(b"3")])
    raw_flow.land([make_event(b"4", lane=Lane.ALARM)], partition=1)
    raw_flow.run()
    rows = raw_flow.raw_rows()
    assert bodies(raw_flow) == [b"1", b"2", b"3", b"4"]
    assert [row for row in rows if row in before] == before
    assert len({row["run"] for row in rows}) == 2
    assert sequences(raw_flow) == [1, 2, 3, 4]


def test_table_raw_begins_with_the_earliest_record_and_ends_where_it_is_switched_off(flow: Flow, make_event) -> None:
    flow.land([make_event(b"1")])
    flow.run()
    assert not (flow.tables / "raw").exists()
    former = flow.settings
    flow.settings = msgspec.structs.replace(former, flow=msgspec.structs.replace(former.flow, raw_days="forever"))
    flow.land([make_event(b"2")])
    flow.run()
    assert bodies(flow) == [b"1", b"2"]
    flow.settings = former
    flow.land([make_event(b"3")])
    flow.run()
    assert (bodies(flow), sequences(flow)) == ([b"1", b"2"], [1, 2, 3])


def test_parsers_that_hang_do_not_stop_table_raw(raw_flow: Flow, make_event, folder: Path, monkeypatch) -> None:
    """F6: every task of the parsing query hangs in a parser that no time limit ends. The flow is ready all the same."""
    monkeypatch.setattr(raw_sink, "DELAY_S", 1)
    monkeypatch.setattr(query, "READY_LIMIT_S", 1)
    monkeypatch.setattr(job, "CATCH_UP_S", 1)
    pipes = [folder / f"pipe-{number}" for number in range(2)]
    for partition, pipe in enumerate(pipes):
        os.mkfifo(pipe)
        raw_flow.land([make_event(str(pipe).encode(), content_type="application/x-stuck")], partition=partition)
    stop, landed, counts = threading.Event(), threading.Semaphore(0), Counter[str]()

    def on_raw() -> None:
        counts["rows"] = len(raw_flow.raw_rows())
        landed.release()

    def on_batch() -> None:
        counts["parsed"] += 1

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(raw_flow.run, once=False, stop=stop, on_raw=on_raw, on_batch=on_batch)
        free = []
        try:
            for more in range(2):
                assert landed.acquire(timeout=LIMIT_S), "nothing arrives in table raw"
                assert (counts["rows"], counts["parsed"]) == (2 + more, 0)
                if not more:
                    raw_flow.land([make_event(b"3")])
        finally:
            stop.set()
            for pipe in pipes:
                free.append(os.open(pipe, os.O_RDWR))
                os.write(free[-1], b"x")
            batches = running.result(LIMIT_S)
            for each in free:
                os.close(each)
    assert [batch.outcomes for batch in batches] == [{"ok": 2}], "the parsers have waited for the pipes"


@pytest.mark.fault("K7")
def test_the_newest_of_two_flows_of_one_name_writes_table_raw(raw_flow: Flow, make_event, monkeypatch) -> None:
    monkeypatch.setattr(raw_sink, "DELAY_S", 1)
    other = other_flow(raw_flow)
    raw_flow.land([make_event(b"1")])
    landed, stop = threading.Event(), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        former = pool.submit(raw_flow.run, once=False, stop=stop, on_raw=landed.set)
        try:
            assert landed.wait(LIMIT_S), "the first flow lands nothing"
            other.run()
            raw_flow.land([make_event(b"2")])
            with pytest.raises(Misconfigured, match="another flow of this name or lane has taken over the table"):
                former.result(LIMIT_S)
        finally:
            stop.set()
    with pytest.raises(Misconfigured, match=r"\[flow\] checkpoint = .*: another flow with \[flow\] name = main"):
        raw_flow.run()
    other.run()
    assert bodies(raw_flow) == [b"1", b"2"]


@pytest.mark.fault("K8")
def test_rows_of_a_topic_that_is_created_again_differ_in_its_id(raw_flow: Flow, make_event) -> None:
    raw_flow.land([make_event(b"1"), make_event(b"2")])
    raw_flow.run()
    create_again(raw_flow)
    raw_flow.land([make_event(b"3")])
    shutil.rmtree(raw_flow.checkpoint)
    raw_flow.run(accept_new_topics=True)
    shutil.rmtree(raw_flow.checkpoint)
    raw_flow.run()

    rows = sorted(raw_flow.raw_rows(), key=lambda row: row["value"])
    assert [(row["value"], row["offset"]) for row in rows] == [(b"1", 0), (b"2", 1), (b"3", 0)]
    first, second, third = (row["topic_id"] for row in rows)
    assert first == second != third


def test_a_failure_of_table_raw_ends_the_flow(raw_flow: Flow, make_event) -> None:
    DeltaTable.create(raw_flow.tables / "raw", schema.arrow_schema(schema.RAW[1:4]))
    raw_flow.land([make_event(b"1")])
    with pytest.raises(Misconfigured, match=r"tables/raw: its columns are not those of this version"):
        raw_flow.run(once=False)


def test_a_failure_of_the_parsing_query_ends_the_flow_after_the_batch_of_table_raw(
    raw_flow: Flow, make_event, monkeypatch
) -> None:
    raw_flow.land([make_event(b"1")])
    landed = threading.Event()

    def fail(*_: object, **__: object) -> None:
        assert landed.wait(LIMIT_S), "nothing arrives in table raw"
        raise Misconfigured("a parser is wrong")

    monkeypatch.setattr(commit.MicroBatchCommitter, "process", fail)
    monkeypatch.setattr(query, "READY_LIMIT_S", 1)
    monkeypatch.setattr(job, "CATCH_UP_S", 1)
    with pytest.raises(Misconfigured, match="a parser is wrong"):
        raw_flow.run(once=False, on_raw=landed.set)
    assert bodies(raw_flow) == [b"1"]
