"""`fogline-edge backup` and `restore`: a gateway in one file, for another machine.

The file is an SQLite database: the outbox as of one moment, with two tables more. `backup` says what it is, and `backup_file`
holds the settings and the files that they name: certificate, keys, passwords, profiles.

A restored gateway keeps its name and its streams: `fogline.gateway.hello.resume` learns by the commit ids what the bridge has.
The bridge gives the copy a new number (`outbox.file.copy_file`), so that the former gateway learns that it is replaced.
"""

import contextlib
import os
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NamedTuple

import msgspec

from fogline.commands.command import CommandState
from fogline.errors import FoglineError, Misconfigured
from fogline.process.files.durable_file import replace_file, sync_path
from fogline.process.files.owner import FolderOwner, become_owner, owner_of, run_as
from fogline_edge.adapters.mqtt.session.session_state import PREFIX, carries_commands
from fogline_edge.credentials.credential_file import note_restored
from fogline_edge.operate.first_settings import require_none
from fogline_edge.outbox.file.copy_file import OLDEST, CopyRecord, change_copy
from fogline_edge.outbox.file.data_folder import FILE, DataFolder, RunEnd, forget_journal_name
from fogline_edge.outbox.file.schema import MIGRATIONS, open_database
from fogline_edge.settings import EdgeSettings, load

_FILE_KEYS = frozenset({"ca", "ca_file", "certificate", "crl", "key", "key_file", "password_file", "users"})
_MAX_FILE_BYTES = 16 * 1024 * 1024
_TABLES = """
CREATE TABLE backup (made TEXT NOT NULL, version TEXT NOT NULL, settings TEXT NOT NULL);
CREATE TABLE backup_file (name TEXT PRIMARY KEY, mode INTEGER NOT NULL, content BLOB NOT NULL);
"""


class NamedFiles(NamedTuple):
    """The settings and the files that they name. `inside`: by path from the folder of the settings. `outside`: all others."""

    inside: dict[str, Path]
    outside: list[Path]


def named_files(config: Path, settings: EdgeSettings) -> NamedFiles:
    """Return the files of a gateway beside its outbox, as far as they exist."""
    folder = config.absolute().parent
    inside, outside = {config.name: config}, list[Path]()
    tables = {name: each for name, each in msgspec.to_builtins(settings).items() if name != "commands"}  # its keys are no files
    for path in dict.fromkeys(Path(os.path.normpath(each)).absolute() for each in _names(tables)):
        if not path.is_file():
            continue
        if path.is_relative_to(folder):
            inside[path.relative_to(folder).as_posix()] = path
        else:
            outside.append(path)
    return NamedFiles(inside, outside)


def _names(value: Any, key: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _names(each, name)
    elif isinstance(value, list):
        for each in value:
            yield from _names(each, key)
    elif isinstance(value, str) and (key in _FILE_KEYS or (key in {"profile", "profiles"} and value.endswith(".toml"))):
        yield value


class Backup(NamedTuple):
    """A backup that was written. `left_out`: files outside the folder of the settings."""

    made: str
    files: list[str]
    left_out: list[str]


def write_backup(config: Path, file: Path) -> Backup:
    """Write the gateway into a new file that only its owner may read. The gateway may run meanwhile. Raises `Misconfigured`.

    Root reads the gateway with the rights of the gateway's user. The backup then takes its place on the disk twice for a
    moment: in the folder for temporary files, where that user writes it, and in `file`.
    """
    if file.exists():
        raise Misconfigured(f"{file} exists already, and is not overwritten: name another file")
    owner = owner_of(config.parent)
    if owner is None:
        return _write_backup(config, file)
    with tempfile.TemporaryDirectory(prefix="fogline-backup-") as name:
        os.chown(name, owner.user, owner.group)
        staged = Path(name) / "backup"
        told = run_as(owner, lambda: _write_backup(config, staged))
        try:
            _take(staged, file, owner)
        except OSError as error:
            raise Misconfigured(f"the backup {file} cannot be written: {error}. Check the free space") from None
    return Backup(*msgspec.json.decode(told, type=tuple[str, list[str], list[str]]))


def _take(staged: Path, file: Path, owner: FolderOwner) -> None:
    """Copy a file that another user has made. Raises `OSError` if it is not an ordinary file of that user's."""
    source = os.open(staged, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(source, "rb") as reading:
        found = os.fstat(source)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != owner.user or found.st_nlink != 1:
            raise OSError(f"{staged} is not the file that was written")
        part = file.with_name(f"{file.name}.part")
        with contextlib.suppress(FileNotFoundError):
            part.unlink()  # of a run that was interrupted
        with os.fdopen(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as writing:
            shutil.copyfileobj(reading, writing, 1024 * 1024)
            writing.flush()
            os.fsync(writing.fileno())
        part.replace(file)
        sync_path(file.parent)


def _write_backup(config: Path, file: Path) -> Backup:
    settings = load(config)
    outbox = Path(settings.data) / FILE
    if not outbox.exists():
        raise Misconfigured(f"there is no outbox in {settings.data}: no gateway has run with these settings")
    named = named_files(config, settings)
    made = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    part = file.with_name(f"{file.name}.part")
    try:
        with contextlib.suppress(FileNotFoundError):
            part.unlink()  # of a run that was interrupted
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        _number(Path(settings.data))
        _copy(outbox, part)
        _add(part, (made, version("fogline-edge"), config.name), named.inside)
        sync_path(part)
        part.replace(file)
        sync_path(file.parent)
    except (OSError, sqlite3.Error) as error:
        with contextlib.suppress(OSError):
            part.unlink()
        raise Misconfigured(f"the backup {file} cannot be written: {error}. Check the free space, and {outbox}") from None
    return Backup(made, sorted(named.inside), [str(each) for each in named.outside])


def _number(folder: Path) -> None:
    """Number a gateway that has none as the oldest copy: a gateway that is restored gets a higher number, whoever is first."""
    change_copy(folder, lambda known: msgspec.structs.replace(known, number=known.number or OLDEST))


def _copy(outbox: Path, part: Path) -> None:
    """Copy the outbox as of one moment. The gateway writes on beside it."""
    with contextlib.closing(sqlite3.connect(f"{outbox.absolute().as_uri()}?mode=ro", uri=True, timeout=30.0)) as connection:
        connection.execute("VACUUM INTO ?", (str(part),))


def _add(part: Path, about: tuple[str, str, str], files: dict[str, Path]) -> None:
    with contextlib.closing(sqlite3.connect(part, isolation_level=None)) as connection:
        connection.executescript(f"BEGIN; {_TABLES}")
        connection.execute("INSERT INTO backup VALUES (?, ?, ?)", about)
        for name, path in sorted(files.items()):
            if path.stat().st_size > _MAX_FILE_BYTES:
                raise OSError(f"{path} has more than {_MAX_FILE_BYTES:,} bytes")
            row = (name, path.stat().st_mode & 0o777, path.read_bytes())
            connection.execute("INSERT INTO backup_file VALUES (?, ?, ?)", row)
        connection.execute("COMMIT")


class Restored(NamedTuple):
    """A gateway that was restored. `made`: time of the backup. `waiting`: events that the bridge had not accepted then."""

    settings: Path
    made: str
    gateway: str
    waiting: int


def renew_restored(config: Path) -> str:
    """Get a certificate of its own for a restored gateway. Returns why there is none, "" if there is or none is needed."""
    settings = load(config)
    tls = settings.uplink.tls
    if tls is None or tls.certificate is None:
        return ""
    from fogline_edge.operate.enrolment import renew  # noqa: PLC0415 - see `fogline_edge.cli.run_enroll`

    try:
        renew(settings)
    except FoglineError as error:
        return str(error)
    return ""


class _Content(NamedTuple):
    made: str
    settings: str
    files: list[tuple[str, int, bytes]]


def restore(file: Path, folder: Path) -> Restored:
    """Make the gateway of a backup, with its settings in `folder`. Overwrites nothing. Raises `Misconfigured`.

    If root does it in another user's folder, the process gives up root's rights for good.
    """
    content = _read(file)
    with file.open("rb") as source:
        become_owner(folder)
        return _restore(file, source, content, folder)


def _restore(file: Path, source: BinaryIO, content: _Content, folder: Path) -> Restored:
    for name, _, _ in content.files:
        require_none(folder / name)
    config = folder / content.settings
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, mode, data in content.files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            replace_file(_beside(folder / name), data, mode)
        settings = load(_beside(config))
        waiting = _restore_outbox(source, settings, content.made)
        for name in sorted({name for name, _, _ in content.files} - {content.settings}):
            _beside(folder / name).replace(folder / name)
        _beside(config).replace(config)
        sync_path(folder)
    except (OSError, sqlite3.Error) as error:
        raise Misconfigured(f"{file} cannot be restored to {folder}: {error}. Check the folder and the free space") from None
    return Restored(config, content.made, f"{settings.gateway} of {settings.tenant}", waiting)


def _read(file: Path) -> _Content:
    if not file.exists():
        raise Misconfigured(f"there is no file {file}")
    try:
        with contextlib.closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
            if found != "ok":
                raise Misconfigured(f"the backup {file} is damaged: {found}. Take another one")
            made, by, settings = connection.execute("SELECT made, version, settings FROM backup").fetchone()
            files = connection.execute("SELECT name, mode, content FROM backup_file").fetchall()
            (version,) = connection.execute("PRAGMA user_version").fetchone()
    except (sqlite3.Error, TypeError, ValueError) as error:
        raise Misconfigured(f"{file} is no backup that `fogline-edge backup` has written, or is damaged: {error}") from None
    if version > 1 + len(MIGRATIONS):
        raise Misconfigured(f"the backup {file} is of fogline-edge {by}, which is newer: install that version first")
    for name, _, _ in files:
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise Misconfigured(f"the backup {file} is forged: it names the file {name!r}")
    if settings not in {name for name, _, _ in files}:
        raise Misconfigured(f"the backup {file} has no settings: take another one")
    return _Content(made, settings, files)


def _restore_outbox(source: BinaryIO, settings: EdgeSettings, made: str) -> int:
    """Put the outbox into the data folder. Returns the number of events that wait. Raises `Misconfigured`."""
    data, name = Path(settings.data), f"{settings.tenant}/{settings.gateway}"
    folder = DataFolder(data, name)
    try:
        if (data / FILE).exists():
            raise Misconfigured(f"there is an outbox in {data} already: move it away, or delete it with `fogline-edge reset`")
        part = data / f"{FILE}.restoring"
        for each in ("", "-wal", "-shm"):
            part.with_name(part.name + each).unlink(missing_ok=True)
        with os.fdopen(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o640), "wb") as target:
            shutil.copyfileobj(source, target, 1024 * 1024)
        waiting = _prepare(part, settings.outbox.max_bytes, name)
        sync_path(part)
        change_copy(data, lambda _: CopyRecord(restored=made))
        if settings.coap is not None:
            note_restored(data)
        folder.note(RunEnd.CLOSING)
        part.replace(data / FILE)
        sync_path(data)
    finally:
        folder.close()
    return waiting


def _prepare(part: Path, max_bytes: int, name: str) -> int:
    """Make an outbox of a backup. An open command may run, or have run, at the gateway that was backed up.

    So it is not sent again, not even an idempotent one: its end would be reported twice. An MQTT session with commands in
    flight ends, because its client may have completed the exchange, and would take a second PUBLISH for a new one.
    """
    connection = open_database(part, max_bytes)
    try:
        (owner,) = connection.execute("SELECT value FROM meta WHERE key = 'gateway'").fetchone()
        if owner != name:
            raise Misconfigured(f"the outbox of the backup belongs to gateway {owner}, and its settings are of {name}")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("DROP TABLE backup")
        connection.execute("DROP TABLE backup_file")
        is_open = (CommandState.SENDING, CommandState.QUEUED)
        connection.execute(
            "UPDATE command SET state = ?, idempotent = 0 WHERE state IN (?, ?)", (CommandState.SENDING, *is_open)
        )
        sessions = connection.execute("SELECT key, value FROM kept WHERE key GLOB ?", (f"{PREFIX}*",)).fetchall()
        ended = [(key,) for key, value in sessions if carries_commands(value)]
        connection.executemany("DELETE FROM kept WHERE key = ?", ended)
        forget_journal_name(connection)
        (waiting,) = connection.execute(
            "SELECT count(*) FROM event JOIN stream ON event.place >> 40 = number WHERE event.place & 1099511627775 > settled"
        ).fetchone()
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        connection.close()
    return int(waiting)


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.restoring")
