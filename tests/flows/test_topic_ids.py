"""Raw topics that are deleted and created again, with a real Kafka and a real Spark."""

import shutil

import pytest

from flows.tenant_flow import Flow
from flows.topic_changes import create_again
from fogline.errors import Misconfigured
from fogline_cloud.flows.driver import commit

CREATED_AGAIN = r"topic hono\.telemetry\.\S+ was deleted and created again.*--accept-new-topics"


def sequences(flow: Flow) -> tuple[list[int], list[int]]:
    events, readings = ([row["sequence"] for row in flow.rows(table)] for table in ("events", "readings"))
    return events, readings


@pytest.mark.fault("K8")
def test_a_topic_created_again_stops_the_flow_although_it_is_longer(flow: Flow, make_event):
    """F2: 3 events of the former topic, 6 of the new one; Spark alone would read only what lies above the old offset."""
    flow.land([make_event(b"1"), make_event(b"2"), make_event(b"3")])
    flow.run()
    create_again(flow)
    flow.land([make_event(b"%d" % number) for number in range(4, 10)])

    with pytest.raises(Misconfigured, match=CREATED_AGAIN):
        flow.run()
    shutil.rmtree(flow.checkpoint)
    with pytest.raises(Misconfigured, match=CREATED_AGAIN):
        flow.run()
    assert sequences(flow) == ([1, 2, 3], [1, 2, 3]), "the tables stay as they are"
    flow.run(accept_new_topics=True)

    assert sequences(flow) == ([*range(1, 10)], [*range(1, 10)])
    shutil.rmtree(flow.checkpoint)
    flow.land([make_event(b"10")])
    flow.run()
    assert sequences(flow) == ([*range(1, 11)], [*range(1, 11)]), "a lost checkpoint is no matter of the former topic"


@pytest.mark.fault("K8")
def test_a_topic_created_again_while_a_batch_is_read_stops_that_batch(flow: Flow, make_event, monkeypatch):
    flow.land([make_event(b"1")])
    flow.run()
    flow.land([make_event(b"2")])
    with monkeypatch.context() as patch:
        process = commit.MicroBatchCommitter.process
        patch.setattr(
            commit.MicroBatchCommitter, "process", lambda *given, **more: (create_again(flow), process(*given, **more))
        )
        with pytest.raises(Misconfigured, match=CREATED_AGAIN):
            flow.run()
    assert sequences(flow) == ([1], [1])
