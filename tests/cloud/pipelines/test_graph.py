"""The graph of a pipeline: what leads from what, what must begin anew together, and where a watermark would drop events."""

import pytest

from fogline.errors import Misconfigured
from fogline_cloud.pipelines.graph import Dataset, DatasetKind, DatasetRead, Graph, require_no_watermark


def stream(name, *sources, watermark=False):
    return Dataset(name, DatasetKind.STREAM, tuple(DatasetRead(each, streaming=True, watermark=watermark) for each in sources))


def view(name, *sources):
    return Dataset(name, DatasetKind.VIEW, tuple(DatasetRead(each, streaming=True) for each in sources))


def materialized(name, *sources):
    return Dataset(name, DatasetKind.MATERIALIZED, tuple(DatasetRead(each) for each in sources))


PLANT = Graph(
    (
        stream("warm", "readings"),
        view("hot", "warm"),
        stream("alarms", "hot"),
        stream("doors", "events"),
        materialized("hourly", "warm", "/data/sites"),
    )
)


def test_sources_are_what_is_read_and_not_declared():
    assert PLANT.sources == ("/data/sites", "events", "readings")
    assert PLANT.roots("alarms") == {"readings"}
    assert PLANT.roots("hourly") == {"readings", "/data/sites"}


def test_only_streams_read_rows_once():
    assert PLANT.streamed_sources("alarms") == {"readings"}
    assert PLANT.streamed_sources("hourly") == set()


def test_streaming_tables_that_begin_anew_take_along_those_that_stream_from_them():
    assert PLANT.streams_after(["warm"]) == {"warm", "alarms"}
    assert PLANT.streams_after(["alarms"]) == {"alarms"}
    assert PLANT.streams_after(["hourly"]) == set()


@pytest.mark.parametrize("source", ["readings", "events", "hot", "hourly"])
def test_a_watermark_on_what_leads_from_our_tables_is_refused_with_what_to_use(source):
    graph = Graph((*PLANT.datasets, stream("means", source, watermark=True)))
    with pytest.raises(Misconfigured, match=r"^means: a watermark on (readings|events) drops .* frames\.windows keeps"):
        require_no_watermark(graph)


def test_a_watermark_on_another_source_is_taken():
    require_no_watermark(Graph((*PLANT.datasets, stream("means", "/data/sites", watermark=True))))
