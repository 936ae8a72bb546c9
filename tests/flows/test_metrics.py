"""The metrics of a flow."""

import time

import msgspec

from flows.tenant_flow import Flow
from flows.topic_changes import add_partition
from fogline.process.monitoring.metrics import METRICS, Sample
from fogline_cloud.flows.driver.commit import Progress
from fogline_cloud.flows.driver.metrics import FlowMetrics
from fogline_cloud.flows.driver.raw_sink import RawProgress
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients
from fogline_lab.events import make_event


def read(metrics: FlowMetrics) -> dict[tuple[str, tuple[str, ...]], Sample]:
    return {(each.name, each.labels): each for each in metrics.read()}


def lag_of_at_least(records: int, metrics: FlowMetrics, lag: tuple[str, tuple[str, ...]]) -> bool:
    """Ask again until the lag is known: Kafka moves the stable end some time after a commit has returned.

    There is no lag while the client does not know the leader of a new partition yet.
    """
    until = time.monotonic() + 60
    found = 0.0
    while found < records and time.monotonic() < until:  # each read asks the broker
        sample = read(metrics).get(lag)
        found = float(sample.value) if sample else 0.0
    return found >= records


def test_a_flow_counts_its_batches_and_knows_its_lag(flow: Flow) -> None:
    flow.settings = msgspec.structs.replace(flow.settings, flow=msgspec.structs.replace(flow.settings.flow, raw_days=1))
    metrics = FlowMetrics(KafkaClients(flow.settings.kafka))
    flow.land([make_event(number) for number in range(1, 6)])
    flow.run(metrics=metrics)
    telemetry = ("fogline_flow_lag", (topics.telemetry(flow.settings.tenant),))
    found = read(metrics)
    assert found["fogline_flow_events_total", ("ok",)].value == 5
    assert found["fogline_flow_batches_total", ()].value == 1
    assert found["fogline_flow_last_commit_timestamp_seconds", ()].value > 0
    assert found[telemetry].value == found["fogline_flow_raw_lag", telemetry[1]].value == 0
    assert found["fogline_flow_raw_records_total", ()].value == 5
    assert found["fogline_flow_raw_last_commit_timestamp_seconds", ()].value > 0
    flow.land([make_event(number) for number in range(6, 9)])
    assert lag_of_at_least(3, metrics, telemetry), "Kafka's stable end did not pass the three new records within 30 s"
    added = add_partition(flow, telemetry[1][0])  # as `topics reshard` does; the flow has read nothing of it yet
    flow.land([make_event(number, stream="00000000000000bb") for number in range(1, 9)], partition=added)
    assert lag_of_at_least(11, metrics, telemetry), "records of a new partition do not count"
    assert {name for name in METRICS if name.startswith("fogline_flow_")} == {name for name, _ in found}


def test_a_flow_that_waits_says_why() -> None:
    metrics = FlowMetrics(KafkaClients({"bootstrap.servers": "127.0.0.1:1"}))
    metrics.on_failure("Kafka does not answer")
    metrics.on_raw_failure("Kafka does not answer")
    assert metrics.problem == "Kafka does not answer"
    metrics.on_progress(Progress(0, 1, 1, {"ok": 1}, 0.1))
    assert metrics.problem == "Kafka does not answer", "the query of table raw still waits"
    metrics.on_raw_progress(RawProgress(0, 1, 0.1))
    assert metrics.problem == ""
    metrics.on_offsets({"t": {"0": 1}})
    assert "fogline_flow_lag" not in {each.name for each in metrics.read()}
