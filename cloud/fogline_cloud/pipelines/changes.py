"""Streaming tables that a change of their source makes wrong. A stream reads each row once, so that it must begin anew then.

A replay, `fogline table forget` and `keep_days` remove rows of `readings` and `events`. Materialized views are computed anew in
each run; streaming tables read inserted rows alone. So before each run, the commits since the last one are looked at.
"""

from collections.abc import Mapping

import msgspec
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from fogline.errors import Unreachable
from fogline_cloud.flows.tables.files import TableFolder
from fogline_cloud.flows.tables.table_history import COMMITTED_BY
from fogline_cloud.pipelines.graph import DatasetKind, Graph
from fogline_cloud.pipelines.notes import Notes
from fogline_cloud.sinks.commits import decode
from fogline_cloud.store.failure import failure_of


class SourceChanges(msgspec.Struct, frozen=True):
    """A table that streams read. `version`: its newest. `removed`: versions that removed rows.

    `since`: `removed` names all of them after this version.
    """

    version: int
    since: int
    removed: tuple[int, ...] = ()


def outdated(graph: Graph, notes: Notes, changes: Mapping[str, SourceChanges], started: set[str]) -> dict[str, str]:
    """Return the streaming tables to refresh fully, each with the reason. `started`: tables that have read something. Pure."""
    found: dict[str, str] = {}
    for each in graph.tables:
        if each.kind is not DatasetKind.STREAM or each.keeps_rows or each.name not in started:
            continue
        for source in sorted(graph.streamed_sources(each.name) & changes.keys()):
            noted, changed = notes.read.get(each.name, {}).get(source), changes[source]
            if noted is None or noted > changed.version:
                found[each.name] = f"it is not known what it has read of {source}"
            elif noted < changed.since:
                found[each.name] = f"the log of {source} does not go back to the last run"
            elif any(version > noted for version in changed.removed):
                found[each.name] = f"rows of {source} were replaced or deleted since the last run"
    for name in graph.streams_after(found):
        found.setdefault(name, "a table that it streams from begins anew")
    return found


def read_changes(folder: TableFolder, since: int) -> SourceChanges | None:
    """Return the changes of a Delta table after a version, `None` if the folder has no such table. Raises as `failure_of`."""
    try:
        if not _is_table(folder):
            return None
        table = DeltaTable(folder.uri, storage_options=folder.storage)
        version = table.version()
        if since >= version or since < 0:
            return SourceChanges(version, min(since, version) if since >= 0 else version)
        commits = table.history(version - since)
    except (DeltaError, OSError) as error:
        raise failure_of(error, f"{folder.path} cannot be read") from None
    if len(commits) < version - since:
        return SourceChanges(version, version)
    # A micro-batch of the flow only inserts, and there may be one a second.
    suspects = [int(each["version"]) for each in commits if COMMITTED_BY not in each]
    return SourceChanges(version, since, tuple(sorted(each for each in suspects if _removes(folder, each))))


def _is_table(folder: TableFolder) -> bool:
    try:
        return bool(DeltaTable.is_deltatable(folder.uri, folder.storage))
    except (DeltaError, OSError) as error:  # it may be a file
        found = failure_of(error, f"{folder.path} cannot be read")
        if isinstance(found, Unreachable):
            raise found from None
        return False


def _removes(folder: TableFolder, version: int) -> bool:
    try:
        with folder.file_system().open_input_file(f"_delta_log/{version:020}.json") as file:
            commit = decode(version, file.read())
    except FileNotFoundError:  # maintenance deletes old entries at any moment
        return True
    return commit.hides_rows or not commit.only_inserts
