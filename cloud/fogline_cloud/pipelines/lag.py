"""How far the tables of a pipeline are behind their sources, without Spark."""

from collections.abc import Mapping

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from fogline_cloud.flows.tables.files import TableFolder
from fogline_cloud.pipelines.drawing import TableFacts
from fogline_cloud.pipelines.graph import Graph
from fogline_cloud.pipelines.notes import Notes
from fogline_cloud.pipelines.stored_tables import StoredTables
from fogline_cloud.sinks.commits import decode


def facts_of(graph: Graph, notes: Notes, tables: StoredTables, sources: Mapping[str, TableFolder]) -> dict[str, TableFacts]:
    """Return what is known of each table that has run. `sources`: the Delta tables among the graph's sources."""
    noted_sources = {source for each in notes.read.values() for source in each}
    versions = {name: _version(folder) for name, folder in sources.items() if name in noted_sources}
    found = {}
    for each in graph.tables:
        if tables.version(each.name) is None:
            continue
        behind = [
            _behind(sources[source], noted, version)
            for source, noted in notes.read.get(each.name, {}).items()
            if (version := versions.get(source)) is not None and noted < version
        ]
        found[each.name] = TableFacts(tables.rows(each.name), " and ".join(sorted(behind)) or "up to date")
    return found


def _version(folder: TableFolder) -> int | None:
    try:
        return int(DeltaTable(folder.uri, storage_options=folder.storage).version())
    except (DeltaError, OSError):
        return None


def _behind(folder: TableFolder, noted: int, version: int) -> str:
    first, last = _committed_ms(folder, noted), _committed_ms(folder, version)
    for_s = "" if first is None or last is None else f" ({(last - first) / 1000:,.0f} s)"
    return f"{version - noted:,} version{'' if version - noted == 1 else 's'}{for_s} behind"


def _committed_ms(folder: TableFolder, version: int) -> int | None:
    try:
        with folder.file_system().open_input_file(f"_delta_log/{version:020}.json") as file:
            return decode(version, file.read()).at_ms
    except (OSError, DeltaError):
        return None
