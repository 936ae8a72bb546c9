"""The graph of a pipeline as Spark resolves it: tables, views, what each reads, and on what a query sets a watermark.

Spark's dry run and its events name tables and states alone. Its server has the resolved graph, in the same Java process. The
classes are Spark's own, of the version that `fogline-cloud[spark]` pins.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError

from fogline.errors import Misconfigured
from fogline_cloud.flows.tables.files import Tables
from fogline_cloud.pipelines.graph import Dataset, DatasetKind, DatasetRead, Graph
from fogline_cloud.pipelines.pipeline import CATALOG, Pipeline
from fogline_cloud.pipelines.spark_connect import PipelineSession

_PATHS: tuple[Callable[[Any], Any], ...] = (
    lambda node: node.dataSource().options().get("path").get(),  # a stream
    lambda node: node.relation().location().rootPaths().mkString(","),
    lambda node: node.table().name(),
)
"""Where the leaves of a plan have the folder that they read."""
_OF_INPUT = "UnresolvedDatasetException"


def resolved_graph(session: PipelineSession, pipeline: Pipeline, graph_id: str, tables: Tables) -> Graph:
    """Return the graph of a declared pipeline. Raises `Misconfigured` for a query that Spark cannot resolve."""
    try:
        found = session.declared(graph_id).toDataflowGraph().resolve()
        _require_resolved(_each(found.resolutionFailedFlows()), pipeline)
        kinds = {
            **{_name(each.identifier(), pipeline): _kind(each) for each in _each(found.tables())},
            **{_name(each.identifier(), pipeline): DatasetKind.VIEW for each in _each(found.views())},
            **{_name(each.identifier(), pipeline): DatasetKind.SINK for each in _each(found.sinks())},
        }
        keeping = {_name(each.identifier(), pipeline) for each in _each(found.tables()) if _keeps_rows(each)}
        reads: dict[str, set[DatasetRead]] = {name: set() for name in kinds}
        for flow in _each(found.resolvedFlows()):
            plan = flow.df().queryExecution().analyzed()
            target = _name(flow.destinationIdentifier(), pipeline)
            found_reads = {*_reads(plan, pipeline, {*kinds}, tables, watermark=False)}
            _require_inputs(target, found_reads, {*kinds} - {_name(each, pipeline) for each in _each(flow.inputs())})
            reads[target] |= found_reads
    except Py4JJavaError as error:
        raise Misconfigured(f"{pipeline.file}: {_first_line(error)}") from None
    return Graph(
        tuple(Dataset(name, kind, tuple(sorted(reads[name])), name in keeping) for name, kind in sorted(kinds.items()))
    )


def _keeps_rows(table: Any) -> bool:
    value = table.properties().get("pipelines.reset.allowed")
    return bool(value.isDefined()) and str(value.get()).lower() == "false"


def _require_inputs(name: str, reads: set[DatasetRead], others: set[str]) -> None:
    """Raise `Misconfigured` if Spark does not know a dataset that a query reads as its input: it would not compute it first."""
    if wrong := sorted(each.name for each in reads if each.name in others):
        raise Misconfigured(
            f"{name}: Spark takes {wrong[0]} for a table outside the pipeline, because this session has run it before: "
            "run it in a process of its own"
        )


def _require_resolved(failed: list[Any], pipeline: Pipeline) -> None:
    """Raise `Misconfigured` for the query that failed by itself, rather than for those that read its table."""
    errors = {_name(each.identifier(), pipeline): each.failure().head() for each in failed}
    causes = {name: error for name, error in errors.items() if error.getClass().getSimpleName() != _OF_INPUT} or errors
    for name, error in causes.items():
        raise Misconfigured(f"{name}: {' '.join(str(error.getMessage()).split())[:300]}")


def _kind(table: Any) -> DatasetKind:
    return DatasetKind.STREAM if table.isStreamingTable() else DatasetKind.MATERIALIZED


def _reads(node: Any, pipeline: Pipeline, datasets: set[str], tables: Tables, *, watermark: bool) -> Iterator[DatasetRead]:
    """Yield what a plan reads. It ends at the datasets of the pipeline, which have plans of their own."""
    kind = node.getClass().getSimpleName()
    watermark = watermark or kind == "EventTimeWatermark"
    if kind == "SubqueryAlias" and (name := _plain(node.identifier().toString(), pipeline)) in datasets:
        yield DatasetRead(name, bool(node.isStreaming()), watermark)
        return
    children = [*_each(node.children()), *_each(node.subqueries())]
    for each in children:
        yield from _reads(each, pipeline, datasets, tables, watermark=watermark)
    if not children and (source := _source(node, pipeline, tables)) is not None:
        yield DatasetRead(source, bool(node.isStreaming()), watermark)


def _source(node: Any, pipeline: Pipeline, tables: Tables) -> str | None:
    """Return the source that a leaf of a plan reads, `None` for rows without one."""
    kind = node.getClass().getSimpleName()
    for path_of in _PATHS:
        try:
            path = _folder(str(path_of(node)))
        except (Py4JError, TypeError):
            continue
        ours = {_folder(getattr(tables, name).path): name for name in tables.__struct_fields__}
        folder = f"{pipeline.file.parent}/"
        return ours.get(path) or path.removeprefix(folder)
    return None if kind in ("LocalRelation", "OneRowRelation", "Range") else kind


def _folder(path: str) -> str:
    plain = path.removeprefix("file:").rstrip("/")
    return plain if "://" in plain else str(Path("/" + plain.lstrip("/"))) if plain.startswith("/") else plain


def _name(identifier: Any, pipeline: Pipeline) -> str:
    return _plain(str(identifier.unquotedString()), pipeline)


def _plain(name: str, pipeline: Pipeline) -> str:
    return name.replace("`", "").removeprefix(f"{CATALOG}.{pipeline.database}.")


def _each(found: Any) -> list[Any]:
    """Return the elements of a sequence of Scala."""
    steps = found.iterator()
    elements = []
    while steps.hasNext():
        elements.append(steps.next())
    return elements


def _first_line(error: Py4JJavaError) -> str:
    message: str = error.java_exception.getMessage() or error.java_exception.toString()
    return message.partition("\n")[0]
