"""Notes how far the streaming queries of a session have read the tables, so that maintenance keeps what they have not."""

import json
import logging
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from fogline_cloud.flows.tables.files import TableFolder
from fogline_cloud.flows.tables.readers import note_reader
from fogline_cloud.store.failure import first_line

log = logging.getLogger(__name__)


class ReaderNotes(StreamingQueryListener):  # type: ignore[misc]  # PySpark leaves this class untyped
    """Notes the version of each table that a query has read, under the query's name or else its id."""

    def __init__(self) -> None:
        self._folders: dict[str, TableFolder] = {}  # by the path that Spark names in its progress

    def watch(self, folder: TableFolder) -> None:
        """Note what queries over this table have read."""
        self._folders[_plain(folder.path)] = folder

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing: the first progress says where the query begins."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Note what a query has read."""
        self.note(event.progress)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing: a query may come back."""

    def note(self, progress: StreamingQueryProgress) -> None:
        """Note what a query has read by this progress. A note that cannot be written is logged: the next one may be."""
        for source in progress.sources:
            folder = self._folder_of(source.description)
            if folder is None or source.endOffset is None:
                continue
            try:
                note_reader(folder, progress.name or str(progress.id), read_version(source.endOffset))
            except (OSError, ValueError) as error:
                log.warning("%s: the version that a query has read cannot be noted: %s", folder.path, first_line(error))

    def _folder_of(self, description: str) -> TableFolder | None:
        path = description.removeprefix("DeltaSource[").removesuffix("]")
        return self._folders.get(_plain(path)) if description.startswith("DeltaSource[") else None


_of_sessions: "WeakKeyDictionary[SparkSession, ReaderNotes]" = WeakKeyDictionary()


def reader_notes(spark: SparkSession) -> ReaderNotes:
    """Return the notes of a session."""
    notes = _of_sessions.get(spark)
    if notes is None:
        notes = _of_sessions[spark] = ReaderNotes()
        spark.streams.addListener(notes)
    return notes


def read_version(offset: str) -> int:
    """Return the last version that a Delta source has read whole by an offset (JSON); -1 before the first."""
    return max(-1, int(json.loads(offset)["reservoirVersion"]) - 1)


def _plain(path: str) -> str:
    return path.removeprefix("file:").replace("//", "/").rstrip("/") if path.startswith(("file:", "/")) else path.rstrip("/")
