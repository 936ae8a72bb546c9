"""How far a sink is behind its table: what the database has, and what the table has."""

import time
from pathlib import Path

import msgspec

from fogline.errors import FoglineError
from fogline_cloud.flows.tables.files import TableFolder
from fogline_cloud.sink_settings import SinkSettings
from fogline_cloud.sinks.commits import decode
from fogline_cloud.sinks.database import connected
from fogline_cloud.sinks.place import Kind, Place
from fogline_cloud.sinks.position import COMPLETE, NOTHING, Position, mismatch
from fogline_cloud.sinks.source import Source


class SinkLag(msgspec.Struct, frozen=True, kw_only=True):
    """One sink. `place`, `table`: its database and its table there. `state`: in a word, or why the database cannot be asked.

    `version`: what the database has, None for nothing. `behind`: the number of versions after it. `behind_s`: the age of the
    first of them.
    """

    name: str
    source: str
    place: str
    table: str
    state: str
    is_known: bool = True
    version: int | None = None
    behind: int | None = None
    behind_s: float | None = None


def lag_of(name: str, settings: SinkSettings, folder: TableFolder, place: Place) -> SinkLag:
    """Return the state of a sink. A database that cannot be asked is a state too. Raises if the table cannot be read."""
    source = Source(folder)
    table = settings.table or settings.source
    lag = SinkLag(name=name, source=settings.source, place=place.shown, table=table, state="not started")
    try:
        at = _position(name, place)
    except FoglineError as error:
        return msgspec.structs.replace(lag, state=str(error), is_known=False)
    if at == NOTHING:
        return lag
    if at.files != COMPLETE:
        state = f"copying: {at.files:,} of {len(source.files(at.version)):,} files"
        return msgspec.structs.replace(lag, state=state, version=at.version)
    newest = source.newest()
    why = mismatch(at, table, source.table_id, source.entry(at.version))
    return msgspec.structs.replace(
        lag,
        state=f"copies anew at the next start: {why}" if why else "follows",
        version=at.version,
        behind=max(0, newest - at.version),
        behind_s=_age_s(source, at.version + 1, newest),
    )


def _position(name: str, place: Place) -> Position:
    if place.kind is not Kind.POSTGRESQL and not Path(place.address).exists():  # to connect would make the file
        return NOTHING
    with connected(place) as database:
        return database.positions().get(name, NOTHING)


def _age_s(source: Source, first: int, newest: int) -> float:
    """Return the age of the first version that is not written, 0 if there is none."""
    if first > newest:
        return 0.0
    entry = source.entry(first)
    at_ms = decode(first, entry).at_ms if entry is not None else None
    return 0.0 if at_ms is None else round(max(0.0, time.time() - at_ms / 1000), 1)
