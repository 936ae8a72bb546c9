"""The readers of the tables, how far each is behind, and how far one without a note could be."""

import msgspec

from fogline_cloud.flows.tables.readers import forget_reader, readers_of
from fogline_cloud.maintenance.maintain import existing
from fogline_cloud.maintenance.plan import entries_of
from fogline_cloud.maintenance.table import MaintainedTable
from fogline_cloud.settings import CloudSettings


class ReaderLag(msgspec.Struct, frozen=True):
    """One reader of one table. `behind`: the number of versions after `version`. `noted_s`: seconds since 1970."""

    table: str
    reader: str
    version: int
    behind: int
    noted_s: float


class ChangeHistory(msgspec.Struct, frozen=True):
    """The changes of a table that the log has. `since_s`: time of the first one, since 1970. `is_cut`: older ones are gone."""

    table: str
    versions: int
    since_s: float
    is_cut: bool


def change_histories(settings: CloudSettings) -> list[ChangeHistory]:
    """Return how far a reader without a note can go back in each table. Raises `Misconfigured` if one cannot be opened."""
    found = []
    for name, folder in existing(settings).items():
        written = MaintainedTable(name, folder).log_written()
        first = min(entries := entries_of(written), default=0)
        since_s = entries[first].timestamp() if entries else 0.0
        found.append(ChangeHistory(name, len(entries), since_s, first > 0))
    return found


def reader_lags(settings: CloudSettings) -> list[ReaderLag]:
    """Return all readers, by table and name. Raises `Misconfigured` if a table cannot be opened."""
    found = []
    for name, folder in existing(settings).items():
        table = MaintainedTable(name, folder)
        with table.mapped():
            newest = table.table.version()
            found += [
                ReaderLag(name, each.name, each.version, max(0, newest - each.version), each.at_ms / 1000)
                for each in readers_of(folder)
            ]
    return found


def forget_reader_everywhere(settings: CloudSettings, reader: str) -> int:
    """Let maintenance keep nothing for a reader any more. Returns the number of tables that it read."""
    forgotten = 0
    for name, folder in existing(settings).items():
        with MaintainedTable(name, folder).mapped():
            forgotten += forget_reader(folder, reader)
    return forgotten
