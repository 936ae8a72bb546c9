"""A micro-batch that is split into more tasks than its topics have partitions."""

import threading

import msgspec
import pytest

from fogline_cloud.flows.driver import parsed_sink


@pytest.mark.parametrize(("least", "files"), [(None, 1), (8, 2)])
def test_a_partition_is_read_by_as_many_tasks_as_there_are_slots(flow, make_event, least, files):
    """Three slots: the flow leaves one to others. Each task writes a file of its own."""
    settings = flow.settings
    flow.settings = msgspec.structs.replace(
        settings, flow=msgspec.structs.replace(settings.flow, min_partitions=least, raw_days=1)
    )
    flow.land([make_event(b"%d" % number, content_type="text/plain") for number in range(40)])
    flow.run()
    assert [row["sequence"] for row in flow.rows("events")] == list(range(1, 41))
    assert [row["value"] for row in flow.rows("readings")] == list(range(40))
    assert len(list((flow.tables / "events").glob("day=*/*.parquet"))) == files
    assert len(flow.raw_rows()) == 40


def test_events_that_were_sent_again_are_recognised_across_the_tasks_of_a_partition(flow, make_event):
    """The first copy, which a gateway sent again beside others, is in another task than the last one."""
    settings = flow.settings
    flow.settings = msgspec.structs.replace(settings, flow=msgspec.structs.replace(settings.flow, min_partitions=8))
    first = [make_event(b"%d" % number, content_type="text/plain") for number in range(30)]
    again = [
        make_event(each.data, content_type="text/plain", id=each.id, replayed=True, stream="00000000000000bb") for each in first
    ]
    third = [
        make_event(each.data, content_type="text/plain", id=each.id, replayed=True, stream="00000000000000cc") for each in first
    ]
    flow.land([*again, *first, *third])
    flow.run()
    rows = flow.rows("events")
    assert {row["id"]: row["outcome"] for row in rows if row["stream"].endswith("aa")} == {each.id: "ok" for each in first}
    assert {row["outcome"] for row in rows if not row["stream"].endswith("aa")} == {"duplicate"}
    assert len(flow.rows("readings")) == 30


def test_the_number_of_tasks_follows_a_clusters_executors_from_batch_to_batch(flow, make_event, monkeypatch):
    settings, slots, stop = flow.settings, [1], threading.Event()
    flow.settings = msgspec.structs.replace(settings, flow=msgspec.structs.replace(settings.flow, min_partitions=8))
    monkeypatch.setattr(parsed_sink, "parsing_slots", lambda *_: slots[0])
    files = []

    def on_batch():
        files.append(len(list((flow.tables / "events").glob("day=*/*.parquet"))))
        if len(files) == 2:
            stop.set()
            return
        slots[0] = 2
        flow.land([make_event(b"%d" % number, content_type="text/plain") for number in range(40)])

    flow.land([make_event(b"%d" % number, content_type="text/plain") for number in range(40)])
    flow.run(once=False, stop=stop, on_batch=on_batch)
    assert files == [1, 3]
