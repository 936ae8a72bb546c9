"""The key files of table `events` (see `fogline_cloud.flows.tables.id_keys`): written for large files, deleted with them."""

from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from datetime import date

import pyarrow as pa
import pyarrow.fs as pafs

from fogline_cloud.flows.tables.id_keys import FOLDER, key_path, write_key_file
from fogline_cloud.maintenance.plan import OPEN_BYTES
from fogline_cloud.maintenance.table import MaintainedTable


def files_without_keys(table: MaintainedTable, today: date) -> dict[date, list[str]]:
    """Return the paths of files that need a key file, by day.

    Small files of the open day do not: they are compacted soon, and the flow computes their keys itself.
    """
    with table.mapped():
        table.table.update_incremental()
        found = pa.table(table.table.get_add_actions(flatten=True))
        present = set(_key_files(table))
    wanted: dict[date, list[str]] = defaultdict(list)
    columns = (found.column(name).to_pylist() for name in ("partition.day", "size_bytes", "path"))
    for day, size, path in sorted(zip(*columns, strict=True)):
        if (day < today or size >= OPEN_BYTES // 2) and key_path(path) not in present:
            wanted[day].append(path)
    return wanted


def write_key_files(table: MaintainedTable, paths: Iterable[str]) -> int:
    """Write the key files of these files. Returns their number. A file that is gone meanwhile needs none."""
    written = 0
    for path in paths:
        with table.mapped(), suppress(FileNotFoundError):
            write_key_file(table.folder, path)
            written += 1
    return written


def delete_unneeded_key_files(table: MaintainedTable, *, dry_run: bool) -> int:
    """Delete the key files of files that the table does not have any more. Returns their number."""
    with table.mapped():
        present = _key_files(table)  # before the table's files, so that none of a new file is among them
        table.table.update_incremental()
        needed = set(map(key_path, pa.table(table.table.get_add_actions(flatten=True)).column("path").to_pylist()))
        unneeded = [path for path in present if path not in needed]
        system = table.folder.file_system()
        for path in unneeded if not dry_run else []:
            system.delete_file(path)
    return len(unneeded)


def _key_files(table: MaintainedTable) -> list[str]:
    found = table.folder.file_system().get_file_info(pafs.FileSelector(FOLDER, recursive=True, allow_not_found=True))
    return [each.path for each in found if each.is_file]
