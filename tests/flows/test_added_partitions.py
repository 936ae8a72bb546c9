"""A topic that gets more partitions while a flow reads it: an operator of Kafka can add some, and nobody can remove them."""

import shutil
from collections.abc import Callable

import msgspec
import pytest

from flows.tenant_flow import Flow
from flows.topic_changes import add_partition, delete_before
from fogline.errors import Misconfigured
from fogline.events.event import Event
from fogline_cloud.flows.start.flow_state import accept_gaps, read_states
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.ledger.balance import judge
from fogline_cloud.ledger.sources import gather

MakeEvent = Callable[..., Event]
FURTHER = "00000000000000bb"


def findings(flow: Flow) -> list[str]:
    streams = gather(KafkaClients(flow.settings.kafka), flow.settings).streams
    return [str(finding) for each in streams for finding in judge(each)]


@pytest.mark.fault("K9")
@pytest.mark.slow
def test_records_of_an_added_partition_land_and_the_ledger_finds_them_in_kafka(flow: Flow, make_event: MakeEvent) -> None:
    flow.settings = msgspec.structs.replace(flow.settings, shards=2)
    name = topics.telemetry(flow.settings.tenant)
    flow.land([make_event(b"1"), make_event(b"2")])
    flow.run()
    added = add_partition(flow, name)
    flow.land([make_event(b"%d" % n, stream=FURTHER, sequence=n, id=f"further-{n}") for n in (1, 2)], partition=added)
    (state,) = read_states(flow.settings)
    assert state.lag[name, added] == 3  # two records and the marker of their transaction
    flow.run()
    assert [(row["partition"], row["sequence"]) for row in flow.rows("events")] == [(0, 1), (0, 2), (added, 1), (added, 2)]
    assert findings(flow) == []

    shutil.rmtree(flow.checkpoint)  # the next one begins after the last rows
    flow.land([make_event(b"3", stream=FURTHER, sequence=3, id="further-3")], partition=added)
    flow.run()
    assert [row["sequence"] for row in flow.rows("events")] == [1, 2, 1, 2, 3]
    assert findings(flow) == []


@pytest.mark.fault("K9")
def test_a_gap_at_the_start_of_an_added_partition_has_a_way_on(flow: Flow, make_event: MakeEvent) -> None:
    """The flow was off while the partition was added, and until Kafka had deleted its first records."""
    flow.settings = msgspec.structs.replace(flow.settings, shards=2)
    name = topics.telemetry(flow.settings.tenant)
    flow.land([make_event(b"1")])
    flow.run()
    added = add_partition(flow, name)
    flow.land([make_event(b"1", stream=FURTHER, sequence=1, id="further-1")], partition=added)
    flow.land([make_event(b"2", stream=FURTHER, sequence=2, id="further-2")], partition=added)
    delete_before(flow, 2, added)
    with pytest.raises(Misconfigured, match="flow resume --accept-gap"):
        flow.run()
    (state,) = read_states(flow.settings)
    assert [(each.partition, each.first, each.last) for each in state.gaps] == [(added, 0, 1)]
    accept_gaps(state)
    flow.run()
    rows = [(row["partition"], row["sequence"], row["reason"]) for row in flow.rows("events")]
    assert sorted(rows, key=str) == sorted([(0, 1, None), (added, None, "retention"), (added, 2, None)], key=str)
    assert findings(flow) == []
