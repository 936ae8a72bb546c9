"""A database that is away, full or refuses: the sink waits, or ends with one sentence."""

import threading
from contextlib import contextmanager

import pytest

from fogline.errors import Misconfigured, Unreachable
from fogline_cloud.flows.tables.files import TableFolder
from fogline_cloud.sink_settings import SinkSettings
from fogline_cloud.sinks import sink as sink_module
from fogline_cloud.sinks.database import connected
from fogline_cloud.sinks.failures import failure_of
from fogline_cloud.sinks.place import Kind, Place, place_of
from fogline_cloud.sinks.sink import Sink, run_sink
from fogline_lab.flow_table import FlowTable
from fogline_lab.postgres import Postgres

LIMIT_S = 60.0
SERVER = Place(Kind.POSTGRESQL, "", "fog@db/lab")
SQLITE = Place(Kind.SQLITE, "/x.db", "/x.db")
DUCKDB = Place(Kind.DUCKDB, "/x.duckdb", "/x.duckdb")


@pytest.fixture
def table(folder):
    return FlowTable("readings", TableFolder(str(folder / "readings")))


def sink_to(table, url, password=None):
    return Sink("lab", SinkSettings(url=url), table.folder, place_of(url, password))


def refusal(table, url, password=None):
    with pytest.raises(Misconfigured) as error:
        sink_to(table, url, password).catch_up(threading.Event(), lambda _: None)
    text = str(error.value)
    assert "\n" not in text
    return text


@pytest.fixture(scope="module")
def server():
    with Postgres() as found:
        found.sql("CREATE ROLE weak LOGIN PASSWORD 'right'")
        yield found


def test_a_wrong_password_is_one_sentence(table, server):
    text = refusal(table, server.url_of("weak"), "wrong")
    assert 'refuses the connection: password authentication failed for user "weak": check url and password_file' in text
    assert "wrong" not in text.replace("wrong password", "")


def test_a_missing_password_is_one_sentence(table, server):
    assert "no password supplied: check url and password_file" in refusal(table, server.url_of("weak"))


def test_a_missing_database_is_one_sentence(table, server):
    assert 'database "nowhere" does not exist' in refusal(table, server.url_of("fog", "nowhere"))


def test_a_missing_right_is_one_sentence(table, server):
    text = refusal(table, server.url_of("weak"), "right")
    assert "permission denied for schema public: the user of the sink needs this right (docs/sinks.md)" in text


def test_a_user_with_the_documented_rights_on_existing_tables_suffices(table, server):
    table.append(2)
    sink_to(table, server.url).catch_up(threading.Event(), lambda _: None)
    server.sql("DELETE FROM readings")
    server.sql("DELETE FROM fogline_sinks")
    try:
        server.sql("GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON readings, fogline_sinks TO weak")
        assert sink_to(table, server.url_of("weak"), "right").catch_up(threading.Event(), lambda _: None)
        assert server.sql("SELECT count(*) FROM readings") == [(2,)]
    finally:
        server.sql("DROP TABLE readings, fogline_sinks")


def test_a_server_that_goes_and_comes_back_is_waited_for(table, monkeypatch):
    monkeypatch.setattr(sink_module, "BACK_OFF_S", (0.05,))
    monkeypatch.setattr(sink_module, "POLL_S", 0.01)
    stop, current, failed = threading.Event(), threading.Event(), threading.Event()
    failures = []

    def on_failure(text):
        failures.append(text)
        failed.set()

    with Postgres() as own:
        table.append(2)
        running = threading.Thread(
            target=run_sink,
            args=(sink_to(table, own.url), stop),
            kwargs={"on_progress": lambda _: None, "on_current": current.set, "on_failure": on_failure},
        )
        running.start()
        try:
            assert current.wait(LIMIT_S)
            own.kill()
            table.append(3)
            assert failed.wait(LIMIT_S)
            current.clear()
            own.start()
            assert current.wait(LIMIT_S)
            assert own.sql("SELECT count(*) FROM readings") == [(5,)]
        finally:
            stop.set()
            running.join(LIMIT_S)
    assert failures[0].startswith("PostgreSQL at ")


def test_a_missing_folder_or_right_of_a_file_is_one_sentence(table, folder):
    for kind in ("duckdb", "sqlite"):
        assert f"there is no folder {folder}/none: create it" in refusal(table, f"{kind}:///{folder}/none/x")
        (folder / "junk").write_bytes(b"x" * 8192)
        assert "database" in refusal(table, f"{kind}:///{folder}/junk")


def test_a_locked_file_is_waited_for(table, folder):
    from adbc_driver_sqlite import dbapi

    place = place_of(f"sqlite:///{folder}/x.db")
    sink = Sink("lab", SinkSettings(url=""), table.folder, place)
    sink.catch_up(threading.Event(), lambda _: None)
    table.append(1)
    with dbapi.connect(place.address, autocommit=True) as other, other.cursor() as cursor:
        cursor.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unreachable, match="database is locked"):
            sink.catch_up(threading.Event(), lambda _: None)
        cursor.execute("ROLLBACK")
    assert sink.catch_up(threading.Event(), lambda _: None)


@pytest.mark.parametrize(
    ("place", "text", "state"),
    [
        (
            SERVER,
            "IO: [libpq] COPY failed: ERROR:  could not extend file: No space left on device\nHINT: x",
            "53100",
        ),
        (SERVER, "IO: FATAL:  sorry, too many clients already\n", "53300"),
        (SERVER, "IO: FATAL:  the database system is starting up\n", None),
        (SERVER, "IO: ERROR:  cannot execute UPDATE in a read-only transaction", "25006"),
        (SERVER, "IO: server closed the connection unexpectedly\n\tThis probably means", None),
        (SQLITE, "IO: Failed to step query: database or disk is full", None),
        (SQLITE, "IO: [SQLite] Failed to commit: disk I/O error", None),
        (DUCKDB, 'INTERNAL: IO Error: Could not set lock on file "/x.duckdb": Conflicting lock is held in python', None),
        (DUCKDB, 'INTERNAL: IO Error: Could not write file "/x.duckdb.wal": No space left on device', None),
        (DUCKDB, "INTERNAL: TransactionContext Error: Conflict on update!", None),
    ],
)
def test_what_may_pass_is_waited_for(place, text, state):
    found = failure_of(place, text, state, is_io=True)
    assert isinstance(found, Unreachable)
    assert "\n" not in str(found)


@pytest.mark.parametrize(
    ("place", "text", "state"),
    [
        (SERVER, 'NOT_FOUND: ERROR:  schema "iot" does not exist\nLINE 1', "3F000"),
        (SERVER, 'IO: [libpq] Failed to connect: FATAL:  role "x" does not exist', None),
        (SERVER, 'IO: could not translate host name "nowhere" to address: Name or service not known', None),
        (SERVER, "INVALID_DATA: ERROR:  incorrect binary data format", "22P03"),
        (DUCKDB, "INTERNAL: Constraint Error: NOT NULL constraint failed: x", None),
        (SQLITE, "INVALID_ARGUMENT: [SQLite] Failed to prepare query: no such table: x\nquery: SELECT", None),
    ],
)
def test_what_the_user_must_change_is_one_sentence(place, text, state):
    found = failure_of(place, text, state, is_io=True)
    assert isinstance(found, Misconfigured)
    assert "\n" not in str(found)


def test_a_position_survives_the_loss_of_the_answer_to_a_commit(table, folder, monkeypatch):
    """The commit is done, and the connection ends before its answer."""
    from fogline_cloud.sinks.database import Database

    place = place_of(f"sqlite:///{folder}/x.db")
    sink = Sink("lab", SinkSettings(url=""), table.folder, place)
    table.append(2)
    sink.catch_up(threading.Event(), lambda _: None)
    table.append(3)
    original = Database.transaction

    @contextmanager
    def lossy(self):
        with original(self):
            yield
        raise Unreachable("the answer is lost")

    with monkeypatch.context() as patch:
        patch.setattr(Database, "transaction", lossy)
        with pytest.raises(Unreachable):
            sink.catch_up(threading.Event(), lambda _: None)
    assert sink.catch_up(threading.Event(), lambda _: None)
    with connected(place) as database:
        assert database.execute("SELECT count(*) FROM readings") == [(5,)]
