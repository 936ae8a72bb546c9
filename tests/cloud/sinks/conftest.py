"""The three databases that a sink fills, and a table of the flow to fill them with."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fogline_cloud.flows.tables.files import TableFolder
from fogline_cloud.sink_settings import SinkSettings
from fogline_cloud.sinks.database import connected
from fogline_cloud.sinks.dialects import listed, quoted
from fogline_cloud.sinks.place import Kind, Place, place_of
from fogline_cloud.sinks.sink import Sink, SinkProgress
from fogline_lab.flow_table import FlowTable
from fogline_lab.postgres import Postgres


class World:
    """A table of the flow, and a database."""

    columns = ("source", "id", "ordinal", "device", "metric", "value", "sequence", "batch")
    """Columns of readings that have the same Python values in every database."""

    def __init__(self, kind: Kind, url: str, folder: Path) -> None:
        self.kind = kind
        self.url = url
        self.place: Place = place_of(url)
        self.folder = folder

    def made(self, name: str = "readings", **how: Any) -> FlowTable:
        return FlowTable(name, TableFolder(str(self.folder / name)), **how)

    def sink(self, made: FlowTable, name: str = "lab", *, copy_again: bool = False, **settings: Any) -> Sink:
        wanted = SinkSettings(url=self.url, source=made.name, **settings)
        return Sink(name, wanted, made.folder, self.place, copy_again=copy_again)

    def fill(self, made: FlowTable, *, sink: Sink | None = None, **settings: Any) -> list[SinkProgress]:
        """Run a sink, a new one unless one is given, until the database has everything. Returns its transactions."""
        done: list[SinkProgress] = []
        assert (sink or self.sink(made, **settings)).catch_up(threading.Event(), done.append)
        return done

    def rows(self, columns: tuple[str, ...] = columns, table: str = "readings") -> list[tuple[Any, ...]]:
        with connected(self.place) as database:
            return sorted(database.execute(f"SELECT {listed(columns)} FROM {quoted(table)}"), key=repr)

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        with connected(self.place) as database:
            return database.execute(statement)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with Postgres() as server:
        yield server


@pytest.fixture
def new_database(postgres: Postgres, tenant: str) -> Callable[[], str]:
    """Return the URL of a new database of the server."""

    def make() -> str:
        name = tenant.replace("-", "_")
        postgres.sql(f"CREATE DATABASE {name}")
        return postgres.url_of("fog", name)

    return make


@pytest.fixture(params=list(Kind))
def world(request: pytest.FixtureRequest, folder: Path) -> World:
    kind: Kind = request.param
    if kind is Kind.POSTGRESQL:
        return World(kind, request.getfixturevalue("new_database")(), folder)
    return World(kind, f"{kind.value}:///{folder}/database.{kind.value}", folder)


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], Any]:
    """Return a context manager in which a method of `Database` raises instead of its n-th call."""
    from fogline_cloud.sinks.database import Database

    @contextmanager
    def interrupt(method: str, nth: int) -> Iterator[None]:
        calls = 0
        original = getattr(Database, method)

        def counted(self, *arguments, **named):
            nonlocal calls
            calls += 1
            if calls == nth:
                raise KeyboardInterrupt
            return original(self, *arguments, **named)

        with monkeypatch.context() as patch:
            patch.setattr(Database, method, counted)
            yield

    return interrupt
