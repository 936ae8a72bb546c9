"""One run of a pipeline: until its tables have all that their sources have. Spark does it; this decides what begins anew."""

import re
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b

import msgspec
from pyspark.errors import PySparkException
from pyspark.pipelines.spark_connect_pipeline import start_run

from fogline.errors import Misconfigured
from fogline_cloud.flows.tables.files import TableFolder, tables_in
from fogline_cloud.flows.tables.readers import note_reader
from fogline_cloud.pipelines.changes import SourceChanges, outdated, read_changes
from fogline_cloud.pipelines.declarations import Declared, declare
from fogline_cloud.pipelines.drawing import TableFacts
from fogline_cloud.pipelines.graph import OURS, DatasetKind, Graph, require_no_watermark
from fogline_cloud.pipelines.lag import facts_of
from fogline_cloud.pipelines.notes import Notes, read_notes, write_notes
from fogline_cloud.pipelines.pipeline import CATALOG, Pipeline
from fogline_cloud.pipelines.resolved_graph import resolved_graph
from fogline_cloud.pipelines.spark_connect import PipelineSession
from fogline_cloud.pipelines.stored_tables import StoredTables
from fogline_cloud.settings import CloudSettings
from fogline_cloud.store.failure import first_line
from fogline_cloud.store.options import storage_of

_STATE = re.compile(r"Flow '?([^\s']+)'? (?:is |has )?([A-Z]+)")
_BROKEN = re.compile(r"\[USER_RAISED_EXCEPTION\] (expectation '.*?' is broken by a row: .*?)(?: SQLSTATE|$)", re.MULTILINE)
_SHOWN = {"RUNNING": "runs", "COMPLETED": "is caught up", "FAILED": "failed", "SKIPPED": "skipped"}
Say = Callable[[str], None]


class PipelineTable(msgspec.Struct, frozen=True):
    """A table after a run. `broken`: number of rows that break each expectation. `anew`: why it was refreshed fully."""

    name: str
    kind: DatasetKind
    rows: int
    broken: dict[str, int] = {}
    anew: str | None = None


class ExpectationBroken(Exception):
    """A row broke an expectation of kind `FAIL`, so the run ended."""


class PipelineRun:
    """Runs one pipeline in a session. `say`: gets a line for each step of a table. Not thread-safe."""

    def __init__(self, session: PipelineSession, pipeline: Pipeline, settings: CloudSettings, say: Say) -> None:
        self._session = session
        self._pipeline = pipeline
        self._settings = settings
        self._say = say
        self._options = storage_of(settings)
        self._ours = tables_in(settings.flow.tables, self._options)
        self._stored = StoredTables(pipeline, self._options)
        self.graph = Graph(())
        """The graph of the last declaration."""

    def check(self) -> Graph:
        """Return the graph after Spark's dry run. Raises `Misconfigured` for what cannot run, a watermark included."""
        declared, graph = self._declare()
        self._start(declared, dry=True)
        return graph

    def run(self, full_refresh: Sequence[str] = (), *, all_anew: bool = False) -> list[PipelineTable]:
        """Run until caught up. Returns the tables. Raises `Misconfigured`, `ExpectationBroken`.

        `full_refresh`: tables to empty and fill again, with the tables that stream from them. `all_anew`: all tables. A run
        that was killed is made good by the next one.
        """
        declared, graph = self._declare()
        notes = read_notes(self._storage)
        changes = self._read_changes(graph, notes)
        before = {each.name: self._stored.version(each.name) for each in graph.tables}
        started = {name for name, version in before.items() if version is not None}
        anew = self._anew(graph, full_refresh, all_anew=all_anew, found=outdated(graph, notes, changes, started))
        for name, reason in sorted(anew.items()):
            self._say(f"{name} begins anew: {reason}")
        read = _versions_of(graph, changes)
        # A table that has read nothing yet has all changes up to now, whenever it begins.
        write_notes(self._storage, Notes(notes.read | {name: read[name] for name in read.keys() - started}, notes.broken))
        try:
            if all_anew:
                self._start(declared, all_anew=True)
            else:
                self._refresh(declared, graph, anew)
        except (ExpectationBroken, Misconfigured):
            self._restore(graph, before)
            raise
        broken = self._stored.broken(self._session.classic, declared.expectations)
        write_notes(self._storage, Notes(read, broken))
        self._note_as_reader(read)
        return [
            PipelineTable(each.name, each.kind, self._stored.rows(each.name), broken.get(each.name, {}), anew.get(each.name))
            for each in graph.tables
        ]

    def draw(self) -> tuple[Graph, dict[str, TableFacts]]:
        """Return the graph, and what is known of each table that has run. Raises `Misconfigured`."""
        _, graph = self._declare()
        sources = {name: self._source(name) for name in graph.sources}
        return graph, facts_of(graph, read_notes(self._storage), self._stored, sources)

    @property
    def _storage(self) -> TableFolder:
        return TableFolder(self._pipeline.storage, self._options)

    def _declare(self) -> tuple[Declared, Graph]:
        self._stored.make_database(self._session.classic)
        # Spark takes a table that its catalog has for one outside the pipeline in some operators, such as withColumnRenamed.
        declared = declare(self._pipeline, self._session.spark, self._settings)
        self._stored.name_in_catalog(self._session.classic)
        graph = resolved_graph(self._session, self._pipeline, declared.graph_id, self._ours)
        require_no_watermark(graph)
        if foreign := [each.name for each in graph.tables if "." in each.name]:
            raise Misconfigured(f"{foreign[0]}: the tables of a pipeline are in one database, so write the name without one")
        self.graph = graph
        return declared, graph

    def _read_changes(self, graph: Graph, notes: Notes) -> dict[str, SourceChanges]:
        found = {}
        for source in graph.sources:
            noted = [each[source] for each in notes.read.values() if source in each]
            if (changes := read_changes(self._source(source), min(noted, default=-1))) is not None:
                found[source] = changes
        return found

    def _source(self, name: str) -> TableFolder:
        """Return the folder of a source. It may be no table, and need not exist."""
        if name in OURS:
            folder: TableFolder = getattr(self._ours, name)
            return folder
        return TableFolder(name if "://" in name else str(self._pipeline.file.parent / name), self._options)

    def _anew(self, graph: Graph, wanted: Sequence[str], *, all_anew: bool, found: Mapping[str, str]) -> dict[str, str]:
        """Return the tables to refresh fully, each with the reason."""
        names = [each.name for each in graph.tables]
        if unknown := [name for name in wanted if name not in names]:
            raise Misconfigured(f"there is no table {unknown[0]} in this pipeline (tables: {', '.join(names)})")
        if kept := [name for name in wanted if (each := graph.find(name)) is not None and each.keeps_rows]:
            raise Misconfigured(f"{kept[0]} keeps its rows (pipelines.reset.allowed is false): it cannot be refreshed fully")
        asked = dict.fromkeys(names, "--full-refresh-all") if all_anew else dict.fromkeys(wanted, "--full-refresh")
        after = dict.fromkeys(graph.streams_after(wanted), "a table that it streams from begins anew")
        return after | dict(found) | asked

    def _refresh(self, declared: Declared, graph: Graph, anew: Mapping[str, str]) -> None:
        # Spark does not wait for a selected table before it computes what reads it, so streams that begin anew run first.
        streams = [each.name for each in graph.tables if each.kind is DatasetKind.STREAM and each.name in anew]
        if streams:
            self._start(declared, streams)
            self._session.may_start_again(declared.graph_id)
        self._start(declared)

    def _start(self, declared: Declared, anew: Sequence[str] = (), *, all_anew: bool = False, dry: bool = False) -> None:
        failures: dict[str, str] = {}
        try:
            results = start_run(
                self._session.spark,
                declared.graph_id,
                anew,
                full_refresh_all=all_anew,
                refresh=(),
                dry=dry,
                storage=self._pipeline.uri,
            )
            for result in results:
                if "pipeline_event_result" in result:
                    self._on_event(result["pipeline_event_result"].event.message, failures)
        except PySparkException as error:
            raise _failure(failures, error) from error

    def _on_event(self, message: str, failures: dict[str, str]) -> None:
        found = _STATE.match(message)
        if found is None or found[2] not in _SHOWN:
            return
        name = found[1].removeprefix(f"{CATALOG}.{self._pipeline.database}.")
        if found[2] == "FAILED":
            failures.setdefault(name, message)
        self._say(f"{name} {_SHOWN[found[2]]}")

    def _restore(self, graph: Graph, before: Mapping[str, int | None]) -> None:
        """Give materialized views back the rows from before a run that failed: Spark empties them first."""
        for each in graph.tables:
            version = before[each.name]
            if each.kind is DatasetKind.MATERIALIZED and version is not None and self._stored.rows(each.name) == 0:
                self._stored.restore(self._session.classic, each.name, version)

    def _note_as_reader(self, read: Mapping[str, Mapping[str, int]]) -> None:
        place = blake2b(self._pipeline.storage.encode(), digest_size=4).hexdigest()
        for source in OURS:
            if versions := [each[source] for each in read.values() if source in each]:
                note_reader(getattr(self._ours, source), f"pipeline-{self._pipeline.name}-{place}", min(versions))


def _versions_of(graph: Graph, changes: Mapping[str, SourceChanges]) -> dict[str, dict[str, int]]:
    """Return the version of each source of each table, from before the run."""
    return {
        each.name: {source: changes[source].version for source in sorted(graph.roots(each.name) & changes.keys())}
        for each in graph.tables
    }


def _failure(failures: Mapping[str, str], error: PySparkException) -> Exception:
    for name, message in failures.items():
        if found := _BROKEN.search(message):
            return ExpectationBroken(f"{name}: {found[1]}")
    name, message = next(iter(failures.items()), ("", str(error)))
    lines = [line.removeprefix("Error: ") for line in message.splitlines() if not line.startswith("Flow ")]
    return Misconfigured(f"{name or 'the pipeline'}: {first_line(Exception(next(iter(lines), str(error))))}")
