"""Declared pipelines, with a real Spark: the examples of deploy/pipelines, and a pipeline beside replays and bad rows."""

from pathlib import Path
from secrets import token_hex

import pytest
from deltalake import DeltaTable

from fogline.errors import Misconfigured
from fogline_cloud.flows.tables.files import tables_in
from fogline_cloud.flows.tables.readers import readers_of
from fogline_cloud.parser_kit.sample_events import read_events
from fogline_cloud.pipelines.drawing import svg
from fogline_cloud.pipelines.graph import Dataset, DatasetKind, DatasetRead
from fogline_cloud.pipelines.landing import TrialLanding
from fogline_cloud.pipelines.pipeline import read_pipeline
from fogline_cloud.pipelines.run import ExpectationBroken, PipelineRun
from fogline_cloud.pipelines.spark_connect import connected
from fogline_cloud.pipelines.stored_tables import StoredTables
from fogline_cloud.pipelines.trial import try_pipeline
from fogline_cloud.settings import CloudSettings, FlowSettings

EXAMPLES = Path(__file__).parents[2] / "deploy" / "pipelines"
PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
SPEC = "name: plant\nstorage: storage\nlibraries: [{glob: {include: queries/**}}]\n"
QUERIES = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from fogline_cloud.pipelines import expect, expect_or_drop, readings

spark = SparkSession.active()

@dp.table
@expect("mild", "value < 30")
@expect_or_drop("plausible", "value < 100")
def warm():
    return readings(streaming=True).where("metric = 't'").select("device", "value")

@dp.materialized_view
def counts():
    return spark.read.table("warm").groupBy("device").count().withColumnRenamed("count", "n")
"""
SEEN = """
@dp.temporary_view
def seen():
    return readings(streaming=True)

@dp.table(table_properties={"pipelines.reset.allowed": "false"})
def kept():
    return readings(streaming=True).select("device")
"""
COUNTS = """
from pyspark import pipelines as dp
from fogline_cloud.pipelines import expect_or_fail, readings

@dp.materialized_view
@expect_or_fail("few", "n < 3")
def counts():
    return readings().groupBy("device").count().withColumnRenamed("count", "n")
"""
EVENT = '{{"device": "{}", "content_type": "application/json", "body": "{{\\"t\\": {}}}"}}\n'


@pytest.fixture(scope="module")
def session(spark):
    with connected(spark) as made:
        made.expect_few_rows()
        yield made


@pytest.mark.parametrize(
    "name",
    ["cold-chain", pytest.param("energy", marks=pytest.mark.slow), pytest.param("coverage", marks=pytest.mark.slow)],
)
def test_the_rows_of_an_example_are_as_expected_with_a_gateway_that_is_three_days_late(session, name):
    lines = []
    found = try_pipeline(session, read_pipeline(EXAMPLES / name), CloudSettings(tenant="test"), lines.append)
    assert [each for each in found.differences if not each.is_none] == []
    assert found.differences
    assert any("three-days-late" in line for line in lines)
    picture = PICTURES / f"pipeline-{name}.svg"
    assert svg(found.graph, {}) == picture.read_text("utf-8"), f"draw it with `fogline pipeline graph --svg {picture}`"


class Plant:
    """A pipeline of its own, and Fogline's tables for it."""

    def __init__(self, session, folder):
        self.session, self.folder = session, folder
        self.settings = CloudSettings(
            tenant="test", flow=FlowSettings(tables=str(folder / "fogline"), checkpoint=str(folder / "c"))
        )
        self.readings = tables_in(self.settings.flow.tables, {}).readings
        self.landing = TrialLanding(self.settings)
        (folder / "queries").mkdir()
        (folder / "spark-pipeline.yml").write_text(SPEC)
        self.declare(QUERIES)
        self.pipeline = read_pipeline(folder)
        self.lines = []
        self.runs = 0

    def declare(self, text):
        (self.folder / "queries" / "plant.py").write_text(text)

    def land(self, *rows):
        (self.folder / "events.jsonl").write_text("".join(EVENT.format(device, value) for device, value in rows))
        self.landing.land(read_events(self.folder / "events.jsonl"))

    def run(self, *full_refresh):
        self.runs += 1
        self.pipeline = self.pipeline.stored_in(self.folder / "storage", f"plant_{self.runs}_{token_hex(4)}")
        return PipelineRun(self.session, self.pipeline, self.settings, self.lines.append).run(full_refresh)

    def rows(self, name):
        return sorted(tuple(each.values()) for each in StoredTables(self.pipeline, {}).contents(name))


@pytest.fixture
def plant(session, folder):
    return Plant(session, folder)


def test_rows_that_break_expectations_are_counted_or_in_a_table_of_their_own_also_after_a_replay(plant):
    plant.land(("a", 20), ("a", 40), ("b", 300))

    first = plant.run()
    assert plant.rows("warm") == [("a", 20.0), ("a", 40.0)]
    assert plant.rows("warm_rejected") == [("b", 300.0, ["plausible"])]
    assert {each.name: (each.rows, each.broken) for each in first} == {
        "warm": (2, {"mild": 1, "plausible": 1}),
        "warm_rejected": (1, {}),
        "counts": (1, {}),
    }

    DeltaTable(plant.readings.uri).update({"value": "21"}, predicate="value = 20")
    plant.land(("b", 10))
    second = plant.run()
    assert plant.rows("warm") == [("a", 21.0), ("a", 40.0), ("b", 10.0)]
    assert plant.rows("counts") == [("a", 2), ("b", 1)]
    assert {each.name: bool(each.anew) for each in second} == {"warm": True, "warm_rejected": True, "counts": False}
    (note,) = readers_of(plant.readings)
    assert note.version == DeltaTable(plant.readings.uri).version()


def test_a_row_that_ends_the_run_is_nowhere_and_the_table_has_its_former_rows(plant):
    plant.declare(COUNTS)
    plant.land(("a", 20), ("a", 21))
    plant.run()
    plant.land(("a", 22))
    with pytest.raises(ExpectationBroken, match=r"^counts: expectation 'few' is broken by a row: n < 3$"):
        plant.run()
    assert plant.rows("counts") == [("a", 2)]


def test_a_dry_run_names_the_graph_and_refuses_watermarks_and_queries_that_spark_cannot_resolve(plant):
    plant.land(("a", 20))
    run = PipelineRun(plant.session, plant.pipeline, plant.settings, plant.lines.append)
    assert run.check().datasets == (
        Dataset("counts", DatasetKind.MATERIALIZED, (DatasetRead("warm"),)),
        Dataset("warm", DatasetKind.STREAM, (DatasetRead("readings", streaming=True),)),
        Dataset("warm_rejected", DatasetKind.STREAM, (DatasetRead("readings", streaming=True),)),
    )
    assert not Path(plant.pipeline.tables, "warm").exists()

    view = "\n@dp.table\ndef means():\n    return {}.withWatermark('event_time', '1 hour').groupBy('event_time').count()\n"
    for text, source in (
        ("readings(streaming=True)", "readings"),
        ("spark.readStream.table('warm')", "a table of the pipeline"),
    ):
        plant.declare(QUERIES + view.format(text))
        with pytest.raises(Misconfigured, match=f"^means: a watermark on {source} drops .* frames.windows keeps"):
            run.check()
    plant.declare(QUERIES + SEEN)
    assert [each.name for each in run.check().datasets if each.keeps_rows] == ["kept"]
    sql = plant.folder / "queries" / "more.sql"
    sql.write_text(
        "CREATE STREAMING TABLE means AS SELECT time, count(*) FROM STREAM seen "
        "WATERMARK time DELAY OF INTERVAL 1 HOUR GROUP BY time"
    )
    with pytest.raises(Misconfigured, match=r"^means: a watermark on readings drops"):
        run.check()
    sql.write_text("CREATE MATERIALIZED VIEW lost AS SELECT * FROM nowhere")
    with pytest.raises(Misconfigured, match="nowhere"):
        run.check()
    sql.unlink()
    plant.declare("1 / 0\n")
    with pytest.raises(Misconfigured, match=r"queries/plant\.py:1: ZeroDivisionError"):
        run.check()
