"""Steps of maintenance on one table. Each is a commit that leaves the rows of a running flow alone."""

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from typing import TypeVar

import pyarrow as pa
import pyarrow.fs as pafs
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction, WriterProperties
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from fogline.errors import Misconfigured, Unreachable
from fogline_cloud.flows.tables.change_reader import ChangeReader, waiting
from fogline_cloud.flows.tables.files import TableFolder
from fogline_cloud.flows.tables.readers import readers_of
from fogline_cloud.flows.tables.table_features import reader_problems
from fogline_cloud.flows.tables.table_log import state_of
from fogline_cloud.maintenance.plan import Compaction, entries_of, expired_log_files, oldest_version, vacuum_after
from fogline_cloud.store.failure import failure_of, first_line

ATTEMPTS = 8
"""Number of times that a step is tried while others commit."""
VACUUM_EVERY = timedelta(hours=20)
"""Time between two vacuums of one table: each lists all of its files."""
_VACUUM = "fogline/vacuum"  # Delta transaction application whose version is the hour of the last vacuum, since 1970
_HOUR_S = 3600
_ROWS_IN_GROUP = 128 * 1024  # a row group of an event table is skipped as a whole
HOOK = PostCommitHookProperties(cleanup_expired_logs=False)
WRITER = WriterProperties(compression="ZSTD", max_row_group_size=_ROWS_IN_GROUP)

log = logging.getLogger(__name__)
T = TypeVar("T")


class MaintainedTable:
    """One table. Raises `Misconfigured` if it cannot be opened.

    Raises `Unreachable` if the store is away, or if others committed during each attempt.
    """

    def __init__(self, name: str, folder: TableFolder) -> None:
        self.name = name
        self.folder = folder
        with self.mapped():
            self.table = DeltaTable(folder.uri, storage_options=folder.storage)
        if found := reader_problems(state_of(self.table, folder.path)):
            raise Misconfigured(found[0])

    @contextmanager
    def mapped(self) -> Iterator[None]:
        """Turn errors of delta-rs into `Misconfigured`, and into `Unreachable` if the store is away."""
        try:
            yield
        except TableNotFoundError:
            raise Misconfigured(f"{self.folder.path}: there is no table: start the flow first") from None
        except (DeltaError, OSError, ValueError) as error:
            raise failure_of(error, self.folder.path) from None

    def retried(self, step: Callable[[], T]) -> T:
        """Do a step on the newest version, again if a concurrent commit came in its way."""
        for attempt in range(1, ATTEMPTS + 1):
            with self.mapped():
                self.table.update_incremental()
                try:
                    return step()
                except CommitFailedError as error:
                    log.info("%s: attempt %d of %d: %s", self.folder.path, attempt, ATTEMPTS, first_line(error))
        raise Unreachable(f"{self.folder.path}: other commits came first {ATTEMPTS} times: try again later")

    def entry(self, version: int) -> bytes | None:
        """Return the content of the log's entry of a version, `None` if there is none."""
        with self.mapped():
            try:
                with self.folder.file_system().open_input_file(f"_delta_log/{version:020}.json") as file:
                    content: bytes = file.read()
            except FileNotFoundError:
                return None
            return content

    def files(self) -> list[tuple[date, int]]:
        """Return day and size of each file."""
        self.table.update_incremental()
        found = pa.table(self.table.get_add_actions(flatten=True))
        return list(zip(found.column("partition.day").to_pylist(), found.column("size_bytes").to_pylist(), strict=True))

    def compact(self, wanted: Compaction) -> int:
        """Join the small files of one day. No row changes. Returns the number of files that the day has now."""

        def step() -> None:
            self.table.optimize.compact(
                partition_filters=[("day", "=", wanted.day)],
                target_size=wanted.target_bytes,
                max_concurrent_tasks=1,
                writer_properties=WRITER,
                post_commithook_properties=HOOK,
            )

        self.retried(step)
        day = date.fromisoformat(wanted.day)
        return sum(each == day for each, _ in self.files())

    def days_before(self, day: date) -> list[str]:
        """Return the days with rows before this one."""
        return sorted({each.isoformat() for each, _ in self.files() if each < day})

    def delete_before(self, day: date) -> None:
        """Delete the rows of all days before this one."""
        self.delete(f"day < '{day.isoformat()}'")

    def delete(self, where: str) -> int:
        """Delete the rows that satisfy a condition. Returns their number, 0 if delta-rs does not count them."""
        found = self.retried(lambda: self.table.delete(where, WRITER, post_commithook_properties=HOOK))
        return int(found.get("num_deleted_rows") or 0)

    def vacuum_is_due(self, now: datetime) -> bool:
        """Return True if the last vacuum was long enough ago."""
        self.table.update_incremental()
        last = self.table.transaction_version(_VACUUM)
        return last is None or now.timestamp() - last * _HOUR_S >= VACUUM_EVERY.total_seconds()

    def waiting_readers(self, now: datetime) -> list[ChangeReader]:
        """Return the readers for which log and files are kept."""
        with self.mapped():
            return waiting(readers_of(self.folder), int(now.timestamp() * 1000))

    def vacuum(self, days: float, now: datetime, *, dry_run: bool) -> int:
        """Delete files that no version of the last `days` needs, and no reader that is behind. Returns their number."""
        readers, written = self.waiting_readers(now), self.log_written()
        read = {each.version for each in readers}
        committed_ms = {version: at.timestamp() * 1000 for version, at in entries_of(written).items() if version in read}
        kept = vacuum_after(days, readers, committed_ms, now)
        # Checkpoints forget after a day when a file became unneeded (`delta.deletedFileRetentionDuration`), so these versions
        # name their files. Files of later versions are younger than `kept`.
        named = sorted({*committed_ms, oldest_version(written, now - timedelta(days=days))})
        hour = int(now.timestamp()) // _HOUR_S
        properties = CommitProperties(app_transactions=[Transaction(_VACUUM, hour, int(now.timestamp() * 1000))])

        def step() -> list[str]:
            files: list[str] = self.table.vacuum(
                retention_hours=math.ceil(kept / timedelta(hours=1)),
                dry_run=dry_run,
                full=True,
                keep_versions=named,
                enforce_retention_duration=False,  # the setting has a lower bound of its own
                commit_properties=properties,
                post_commithook_properties=HOOK,
            )
            return files

        found = len(self.retried(step))
        return found + self._delete_contested(now - timedelta(days=days), dry_run=dry_run)

    def _delete_contested(self, before: datetime, *, dry_run: bool) -> int:
        """Delete files that a killed flow left in the folders that Delta ignores. Returns their number."""
        with self.mapped():
            system = self.folder.file_system()
            found = system.get_file_info(pafs.FileSelector("_contested", recursive=True, allow_not_found=True))
            old = [each.path for each in found if each.is_file and each.mtime.astimezone(UTC) < before]
            for path in old if not dry_run else []:
                system.delete_file(path)
        return len(old)

    def log_written(self) -> dict[str, datetime]:
        """Return when each file of the log was written."""
        with self.mapped():
            found = self.folder.file_system().get_file_info(pafs.FileSelector("_delta_log"))
        return {each.base_name: each.mtime.astimezone(UTC) for each in found if each.is_file}

    def expire_log(self, keep_commits: int, now: datetime, *, dry_run: bool) -> int:
        """Delete the log's files that only versions before the last `keep_commits` need, and no reader.

        Returns their number.
        """
        readers = self.waiting_readers(now)
        with self.mapped():
            self.table.update_incremental()
            system = self.folder.file_system()
            expired = expired_log_files(self.log_written(), self.table.version(), keep_commits, readers)
            for name in expired if not dry_run else []:
                system.delete_file(f"_delta_log/{name}")
        return len(expired)
