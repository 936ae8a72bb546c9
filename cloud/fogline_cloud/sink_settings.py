"""Settings of the databases that `fogline sink` fills. docs/reference/settings.md is generated from them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from fogline.installed import credential

_FILES = ("duckdb", "sqlite")


class SinkSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A database that `fogline sink run NAME` fills with a table (docs/sinks.md)."""

    url: str
    """`postgresql://user@host/database`, with libpq's options after `?`; `duckdb:///file` or `sqlite:///file`, relative to the
    settings file unless the path begins with a further `/`."""
    password_file: str | None = None
    """File with the password of the user in `url`. Only its owner may read it. Default: libpq looks into `~/.pgpass`, if the
    server asks for one."""
    source: Literal["readings", "events", "raw"] = "readings"
    """The table that is written."""
    table: str | None = None
    """Name of the table in the database, or `schema.table`. The sink makes it. Default: that of `source`."""
    columns: Annotated[list[str], Meta(min_length=1)] | None = None
    """Columns to write. Those that identify a row are always written. Default: all."""
    hypertable: bool = False
    """If true, a table that the sink makes in PostgreSQL is a hypertable of TimescaleDB, in chunks by `ingested`."""
    transaction_rows: Annotated[int, Meta(ge=1)] = 500_000
    """Largest number of rows in one transaction. A version of the table that has more is one transaction all the same."""


def resolve_sinks(sinks: Mapping[str, SinkSettings], folder: Path) -> dict[str, SinkSettings]:
    """Return the settings with absolute paths. `folder`: of the settings file."""
    return {name: _resolved(each, folder) for name, each in sinks.items()}


def _resolved(sink: SinkSettings, folder: Path) -> SinkSettings:
    scheme, found, file = sink.url.partition(":///")
    url = f"{scheme}:///{folder / file}" if found and scheme in _FILES else sink.url
    password_file = sink.password_file
    if password_file is not None:  # a credential of that name comes first: it is read at the start only
        password_file = str(credential(password_file) or folder / password_file)
    return msgspec.structs.replace(sink, url=url, password_file=password_file)
