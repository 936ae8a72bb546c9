"""Tables, checkpoint and topics that an earlier version wrote (`former/write.py`) are used by this one."""

import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from flows.former.write import ARCHIVE, FEW, TENANT, event
from flows.tenant_flow import Flow
from fogline_cloud.flows.driver.checkpoint import open_checkpoint
from fogline_cloud.settings import CloudSettings, FlowSettings
from fogline_lab.kafka_broker import KafkaBroker


@pytest.fixture
def former(spark: SparkSession, folder: Path) -> Iterator[Flow]:
    """The earlier version's flow, with a broker on the files of the broker that it read from."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.2 of Debian 12 has no filters
        archive.extractall(folder)
    with KafkaBroker(folder / "kafka", properties=FEW) as broker:
        settings = FlowSettings(tables=str(folder / "tables"), checkpoint=str(folder / "checkpoint"))
        flow = Flow(spark, CloudSettings(tenant=TENANT, kafka={"bootstrap.servers": broker.bootstrap}, shards=1, flow=settings))
        flow.check()
        yield flow


def test_a_flow_continues_after_the_last_batch_of_an_earlier_version(former: Flow) -> None:
    before = former.rows("events"), former.rows("readings")
    assert [row["sequence"] for row in before[0]] == [1, 2, 3, 4, 5]
    run = open_checkpoint(former.spark, str(former.checkpoint)).run

    replayed, new = former.run()
    former.land([event(7)])
    former.run()

    assert (replayed.batch, replayed.events, new.batch, new.events) == (1, 2, 2, 1), "batch 1 had no note in the checkpoint"
    events, readings = former.rows("events"), former.rows("readings")
    assert events[:5] == [{**dict.fromkeys(events[0]), **row} for row in before[0]], "columns that came since are null"
    assert readings[:8] == before[1]
    assert [(row["sequence"], row["outcome"], row["batch"]) for row in events[2:]] == [
        (3, "dead", 0),
        (4, "ok", 1),
        (5, "ok", 1),
        (6, "ok", 2),
        (7, "ok", 3),
    ]
    assert [(row["sequence"], row["metric"], row["value"]) for row in readings[8:]] == [
        (6, "t", 6.5),
        (6, "n", 6.0),
        (7, "t", 7.5),
        (7, "n", 7.0),
    ]
    assert {row["run"] for row in events} == {run}, "the checkpoint is used, not a new one"
