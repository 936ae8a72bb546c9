"""Records that Kafka deleted before the flow had read them, with a real Kafka and a real Spark."""

import json
import shutil
import time
from argparse import Namespace
from typing import Any

import msgspec
import pytest

from flows.tenant_flow import Flow
from flows.topic_changes import delete_before
from fogline.errors import Misconfigured
from fogline_cloud.cli.tables import flow_state
from fogline_cloud.flows.driver import commit, query
from fogline_cloud.flows.start.flow_state import STALLED_S, accept_gaps, read_states
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.ledger.balance import judge
from fogline_cloud.ledger.sources import gather

DELETED = (
    r"Kafka has deleted records that the flow has not read: hono\.telemetry\.\S+\[0\]: offsets {} to {} \({} records at most\)"
)


def sequences(flow: Flow) -> tuple[list[int], list[int]]:
    events, readings = (
        [row["sequence"] for row in flow.rows(table) if row["sequence"] is not None] for table in ("events", "readings")
    )
    return events, readings


def run_command(flow: Flow, monkeypatch, capsys, command: str, **options: bool) -> tuple[int, dict[str, Any]]:
    """Run `fogline flow status` or `resume` with --json. Returns its status and output."""
    monkeypatch.setattr(flow_state, "load", lambda _: flow.settings)
    capsys.readouterr()
    status = getattr(flow_state, f"_{command}")(Namespace(config=None, json=True, **options))
    return status, json.loads(capsys.readouterr().out)


@pytest.mark.fault("K9")
def test_after_an_accepted_gap_the_flow_continues_and_the_loss_has_a_row(flow: Flow, make_event, monkeypatch, capsys):
    """F3: offset 2 is the marker of the first transaction; retention deletes events 3 to 5 unread."""
    flow.settings = msgspec.structs.replace(flow.settings, flow=msgspec.structs.replace(flow.settings.flow, raw_days=90))
    flow.land([make_event(b"1"), make_event(b"2")])
    flow.land([make_event(b"1", stream="00000000000000bb", sequence=1, id="ID-of-another")], partition=1)
    flow.run()
    flow.land([make_event(b"%d" % number) for number in (3, 4, 5)])
    flow.land([make_event(b"6")])
    delete_before(flow, 6)

    with pytest.raises(Misconfigured, match=DELETED.format(3, 5, 3) + r".*fogline flow resume --accept-gap"):
        flow.run()
    name = topics.telemetry(flow.settings.tenant)
    gaps = [
        {"table": table, "topic": name, "partition": 0, "first": 3, "last": 5, "records_at_most": 3}
        for table in ("events", "raw")
    ]
    status, facts = run_command(flow, monkeypatch, capsys, "status")
    events, raw = facts["queries"]
    assert (status, events["gaps"] + raw["gaps"]) == (1, gaps)
    assert {(each["topic"], each["partition"]): each["lag"] for each in events["partitions"]}[name, 0] == 6
    assert run_command(flow, monkeypatch, capsys, "resume", accept_gap=False) == (1, {"accepted": False, "gaps": gaps})
    assert run_command(flow, monkeypatch, capsys, "resume", accept_gap=True) == (0, {"accepted": True, "gaps": gaps})
    assert run_command(flow, monkeypatch, capsys, "resume", accept_gap=True) == (0, {"accepted": False, "gaps": []})
    flow.run()
    flow.land([make_event(b"7")])
    shutil.rmtree(flow.checkpoint)
    flow.run()

    assert sequences(flow) == ([1, 2, 6, 7, 1], [1, 2, 6, 7, 1])
    (row,) = [row for row in flow.rows("events") if row["reason"] == "retention"]
    assert (row["outcome"], row["topic"], row["partition"], row["offset"]) == ("gap", name, 0, 5)
    assert row["detail"].endswith(f"{name}[0]: offsets 3 to 5 (3 records at most)")
    streams = gather(KafkaClients(flow.settings.kafka), flow.settings).streams
    assert [finding for each in streams for finding in judge(each)] == []
    assert [(loss.first, loss.last, loss.reason) for each in streams for loss in each.losses] == [(3, 5, "retention")]
    status, facts = run_command(flow, monkeypatch, capsys, "status")
    lags = {each["lag"] for query in facts["queries"] for each in query["partitions"]}
    assert (status, facts["problems"], lags <= {0, 1}) == (0, [], True)
    assert [row["offset"] for row in flow.raw_rows() if (row["topic"], row["partition"]) == (name, 0)] == [0, 1, 7, 9]
    flow.land([make_event(b"8")])
    problem = read_states(flow.settings)[0].problems(time.time() + STALLED_S)[0]
    assert "2 offsets wait for table events, and no commit came for 5 minutes: start `fogline flow run`" in problem


@pytest.mark.fault("K9")
def test_a_kill_while_a_gap_is_accepted_changes_nothing(flow: Flow, make_event, monkeypatch):
    """F3: the old checkpoint has a planned batch that cannot be read, and it is never used again."""
    flow.land([make_event(b"1")])
    flow.run()
    flow.land([make_event(b"2"), make_event(b"3")])
    with monkeypatch.context() as killed:
        killed.setattr(commit.MicroBatchCommitter, "process", lambda *_, **__: 1 / 0)
        with pytest.raises(Misconfigured, match="ZeroDivisionError"):
            flow.run()
    flow.land([make_event(b"4")])
    delete_before(flow, 4)
    (state,), (late,) = read_states(flow.settings), read_states(flow.settings)
    with monkeypatch.context() as killed:
        killed.setattr("fogline_cloud.flows.tables.delta_log.DeltaLog._commit", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            accept_gaps(state)
    assert sequences(flow) == ([1], [1])
    accept_gaps(state)
    with pytest.raises(Misconfigured, match="taken over"):
        accept_gaps(late)
    for doomed in ("delete_checkpoint", "open_checkpoint"):
        with monkeypatch.context() as killed:
            killed.setattr(query, doomed, lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                flow.run()
    shutil.rmtree(flow.checkpoint / "offsets")  # as a kill within the deletion leaves it

    flow.run()

    assert sequences(flow) == ([1, 4], [1, 4])
    assert [row["offset"] for row in flow.rows("events") if row["reason"] == "retention"] == [3]


@pytest.mark.fault("K9")
def test_a_lost_checkpoint_and_a_partition_without_records_are_no_gap(flow: Flow, make_event):
    """Retention deletes everything that was read: only the marker, which has no row, is not known from the tables."""
    flow.land([make_event(b"1")])
    flow.run()
    delete_before(flow, 2)
    shutil.rmtree(flow.checkpoint)
    assert [state.gaps for state in read_states(flow.settings)] == [[]]
    flow.run()
    flow.land([make_event(b"2")])
    flow.run()
    assert sequences(flow) == ([1, 2], [1, 2])
