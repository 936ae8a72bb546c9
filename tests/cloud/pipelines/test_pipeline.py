"""A pipeline's folder, the files of a new one, and events that land for its test: all without Spark."""

from datetime import UTC, datetime

import pytest
from deltalake import DeltaTable

from fogline.errors import Misconfigured
from fogline_cloud.cli.main import main
from fogline_cloud.flows.tables.files import tables_in
from fogline_cloud.parser_kit.sample_events import read_events
from fogline_cloud.pipelines import readings
from fogline_cloud.pipelines.landing import TrialLanding
from fogline_cloud.pipelines.pipeline import read_pipeline
from fogline_cloud.pipelines.skeleton import write_skeleton
from fogline_cloud.settings import CloudSettings, FlowSettings


def spec(folder, text):
    (folder / "spark-pipeline.yml").write_text(text)
    return read_pipeline(folder)


def test_storage_is_relative_to_the_spec_and_the_name_is_that_of_the_database(folder):
    found = spec(folder, "name: Cold-chain\nstorage: storage\n")
    assert (found.storage, found.uri) == (str(folder / "storage"), (folder / "storage").as_uri())
    assert (found.name, found.database) == ("Cold-chain", "cold_chain")
    assert read_pipeline(folder / "spark-pipeline.yml") == found


def test_storage_may_be_a_url(folder):
    assert spec(folder, "name: a\nstorage: s3a://site/a/\ndatabase: b\n").uri == "s3a://site/a"
    assert spec(folder, "name: a\nstorage: file:///data/a\n").storage == "/data/a"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: a\n", "storage"),
        ("name: a\nstorage: s\nmore: 1\n", "more"),
        ("name: [\n", "spark-pipeline.yml"),
        ("", "spark-pipeline.yml"),
        ("name: a\nstorage: s\ncatalog: hive\n", "catalog hive"),
    ],
)
def test_a_wrong_spec_is_named_in_one_line(folder, text, words):
    with pytest.raises(Misconfigured, match=words) as caught:
        spec(folder, text)
    assert "\n" not in str(caught.value)


def test_a_folder_without_a_spec_names_init(folder):
    with pytest.raises(Misconfigured, match="fogline pipeline init"):
        read_pipeline(folder)


def test_a_new_pipeline_has_its_files_and_is_not_written_twice(folder, capsys):
    assert main(["pipeline", "init", str(folder / "cold-chain")]) == 0
    assert "next: fogline pipeline" in capsys.readouterr().out
    assert read_pipeline(folder / "cold-chain").database == "cold_chain"
    compile((folder / "cold-chain" / "transformations" / "temperatures.py").read_text(), "temperatures.py", "exec")
    with pytest.raises(Misconfigured, match="exists already"):
        write_skeleton(folder / "cold-chain")
    with pytest.raises(Misconfigured, match="a name is words"):
        write_skeleton(folder / "Cold Chain")


def test_the_tables_of_a_pipeline_are_those_of_its_run():
    with pytest.raises(Misconfigured, match=r"use fogline_cloud\.frames\.readings"):
        readings()


def test_recorded_events_land_as_the_flow_lands_them(folder):
    """With the parsers, the gateway's stream, and Kafka's time, which is that of the latest event so far."""
    (folder / "live.jsonl").write_text(
        '{"device": "a", "content_type": "application/json", "body": "{\\"t\\": 1}", "recordedtime": "2026-01-08T09:00:00Z"}\n'
        '{"device": "b", "content_type": "application/json", "body": "{", "recordedtime": "2026-01-08T08:00:00Z"}\n'
    )
    (folder / "late.jsonl").write_text(
        '{"gateway": "gw-2", "device": "a", "content_type": "text/plain", "body": "7", '
        '"recordedtime": "2026-01-05T09:00:00Z"}\n'
    )
    settings = CloudSettings(tenant="t", flow=FlowSettings(tables=str(folder / "tables")))
    landing = TrialLanding(settings)
    for name in ("live", "late"):
        landing.land(read_events(folder / f"{name}.jsonl"))

    tables = tables_in(settings.flow.tables, {})
    events, found = (DeltaTable(each.uri).to_pyarrow_table().to_pylist() for each in (tables.events, tables.readings))
    noon = datetime(2026, 1, 8, 9, tzinfo=UTC)
    assert {(each["device"], each["outcome"], each["gateway"], each["sequence"], each["ingested"]) for each in events} == {
        ("a", "ok", None, None, noon),
        ("b", "dead", None, None, noon),
        ("a", "ok", "gw-2", 3, noon),
    }
    assert len({(each["source"], each["id"]) for each in events}) == 3
    assert {(each["metric"], each["value"], each["time"]) for each in found} == {
        ("t", 1.0, noon),
        ("value", 7.0, datetime(2026, 1, 5, 9, tzinfo=UTC)),
    }
