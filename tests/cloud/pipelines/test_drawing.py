"""The picture of a pipeline."""

import re
from xml.etree import ElementTree as ET

from fogline_cloud.pipelines.drawing import TableFacts, mermaid, svg
from fogline_cloud.pipelines.graph import Dataset, DatasetKind, DatasetRead, Graph

PLACES = DatasetRead("/data/a&b/places.csv")
GRAPH = Graph(
    (
        Dataset("alarms", DatasetKind.STREAM, (DatasetRead("temperatures", streaming=True), PLACES)),
        Dataset("hot", DatasetKind.VIEW, (DatasetRead("temperatures"),)),
        Dataset("hourly", DatasetKind.MATERIALIZED, (DatasetRead("hot"),)),
        Dataset("temperatures", DatasetKind.STREAM, (DatasetRead("readings", streaming=True),)),
    )
)
FACTS = {"temperatures": TableFacts(1234, "up to date"), "hourly": TableFacts(7, "3 versions (12 s) behind")}
SPACE = "{http://www.w3.org/2000/svg}"


def test_mermaid_has_each_dataset_with_rows_and_lag_and_tells_streams_from_tables():
    assert mermaid(GRAPH, FACTS) == (
        "flowchart LR\n"
        '    n0[("/data/a&amp;b/places.csv")]\n'
        '    n1[("readings")]\n'
        '    n2["alarms<br/>streaming table"]\n'
        '    n3(["hot<br/>view"])\n'
        '    n4["hourly<br/>materialized view<br/>7 rows, 3 versions (12 s) behind"]\n'
        '    n5["temperatures<br/>streaming table<br/>1,234 rows, up to date"]\n'
        "    n5 ==> n2\n"
        "    n0 --> n2\n"
        "    n5 --> n3\n"
        "    n3 --> n4\n"
        "    n1 ==> n5\n"
    )


def test_svg_has_a_box_for_each_and_a_line_for_each_read_from_left_to_right():
    root = ET.fromstring(svg(GRAPH, FACTS))
    titles = [each.text for each in root.iter(f"{SPACE}title")]
    assert sorted(titles) == sorted([*GRAPH.sources, *(each.name for each in GRAPH.datasets)])
    boxes = {group.find(f"{SPACE}title").text: group.find(f"{SPACE}rect") for group in root.iter(f"{SPACE}g")}
    places = {name: (float(box.get("x")), float(box.get("y"))) for name, box in boxes.items()}
    assert len(set(places.values())) == len(places)
    assert places["readings"][0] < places["temperatures"][0] < places["hot"][0] < places["hourly"][0]
    lines = [each for each in root.iter(f"{SPACE}path") if each.get("marker-end")]
    assert sorted(each.get("stroke-width") for each in lines) == ["1", "1", "1", "3", "3"]
    starts = [float(re.match(r"M([\d.]+)", each.get("d"))[1]) for each in lines]
    assert all(start < float(each.get("d").split()[-2]) for start, each in zip(starts, lines, strict=True))
    assert "1,234 rows, up to date" in "".join(root.itertext())


def test_the_same_graph_is_always_the_same_picture():
    assert svg(GRAPH, FACTS) == svg(Graph(GRAPH.datasets), dict(FACTS))


def test_an_empty_pipeline_is_a_picture_too():
    ET.fromstring(svg(Graph(()), {}))
    assert mermaid(Graph(()), {}) == "flowchart LR\n"
