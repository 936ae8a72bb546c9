"""Tests a pipeline: recorded events land in tables of their own, the pipeline runs over them, and rows are compared.

| file in the pipeline's folder | content |
|---|---|
| `test/1-live.jsonl`, `test/2-late.jsonl` ... | events as of `fogline parser test`; the pipeline runs after each file |
| `test/expected/TABLE.jsonl` | the rows of a table at the end |
"""

from collections.abc import Sequence
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory

import msgspec
from msgspec.structs import replace

from fogline.errors import Misconfigured
from fogline_cloud.parser_kit.sample_events import read_events
from fogline_cloud.pipelines.expected_rows import Row, RowDifference, compare, read_rows
from fogline_cloud.pipelines.graph import Graph
from fogline_cloud.pipelines.landing import TrialLanding
from fogline_cloud.pipelines.pipeline import Pipeline
from fogline_cloud.pipelines.run import PipelineRun, Say
from fogline_cloud.pipelines.spark_connect import PipelineSession
from fogline_cloud.pipelines.stored_tables import StoredTables
from fogline_cloud.settings import CloudSettings

FOLDER = "test"
_EXPECTED = "expected"
_TENANT = "test"


class TrialResult(msgspec.Struct, frozen=True):
    """How the tables differ from what is expected, and the graph as it ran."""

    differences: list[RowDifference]
    graph: Graph

    @property
    def is_good(self) -> bool:
        """True if the rows are those that are expected."""
        return all(each.is_none for each in self.differences)


def try_pipeline(session: PipelineSession, pipeline: Pipeline, settings: CloudSettings, say: Say) -> TrialResult:
    """Return the result of a test. Raises `Misconfigured`, `ExpectationBroken`.

    `settings`: the parsers, their rules and limits are those of `[flow]`. Must be called in the main thread.
    """
    folder = pipeline.file.parent / FOLDER
    steps, expected = sorted(folder.glob("*.jsonl")), sorted((folder / _EXPECTED).glob("*.jsonl"))
    if not steps or not expected:
        raise Misconfigured(f"{folder}: expected files of events (1-live.jsonl), and of rows (expected/TABLE.jsonl)")
    wanted = {each.stem: read_rows(str(each), each.read_bytes()) for each in expected}
    recorded = {each.name: read_events(each) for each in steps}
    with TemporaryDirectory(prefix="fogline-pipeline-") as scratch:
        alone = _alone(settings, Path(scratch))
        landing, tested = TrialLanding(alone), pipeline
        for name, events in recorded.items():
            say(f"{pipeline.name}: {len(events)} events of {name}")
            landing.land(events)
            # A database of its own, because Spark must not know the pipeline's tables when it declares them again.
            tested = tested.stored_in(Path(scratch) / "storage", f"test_{token_hex(4)}")
            run = PipelineRun(session, tested, alone, say)
            run.run()
        return TrialResult([_compare(StoredTables(tested, {}), table, rows) for table, rows in wanted.items()], run.graph)


def _alone(settings: CloudSettings, scratch: Path) -> CloudSettings:
    flow = replace(settings.flow, tables=str(scratch / "fogline"), checkpoint=str(scratch / "checkpoint"))
    return replace(settings, tenant=_TENANT, flow=flow)


def _compare(tables: StoredTables, name: str, expected: Sequence[Row]) -> RowDifference:
    known = tables.columns(name)
    if unknown := [each for each in (expected[0] if expected else ()) if each not in known]:
        raise Misconfigured(f"{FOLDER}/{_EXPECTED}/{name}.jsonl: the table has no column {unknown[0]} ({', '.join(known)})")
    return compare(name, expected, tables.contents(name))
