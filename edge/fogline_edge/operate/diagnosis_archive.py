"""`fogline-edge diag`: one archive with what a helper needs to understand a gateway, and no secret."""

import io
import json
import os
import re
import subprocess
import tarfile
import time
import tomllib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from fogline.errors import FoglineError, Misconfigured
from fogline.process.files.owner import as_owner
from fogline.process.files.user_file import read_text
from fogline_edge.machine.health import read_machine
from fogline_edge.operate.doctor import diagnose
from fogline_edge.operate.status import read_status
from fogline_edge.settings import EdgeSettings, load

UNIT = "fogline-edge.service"
JOURNAL_LINES = 5000
_COMMAND_S = 20.0
_SHORTEST = 8
"""Shorter lines of a file with secrets are not searched for: they would blank out ordinary words."""
_HIDDEN = b"[secret]"
_SECRET_KEYS = frozenset({"key", "key_file", "certificate", "password_file", "users"})
"""Settings that name a file with a secret. Certificate and key may be in one file."""


def write_archive(config: Path, folder: Path) -> Path:
    """Write `fogline-diag-<gateway>-<time>.tar.gz` into a folder, readable by its owner only. Raises `Misconfigured`."""
    logs = list(_logs())
    found = as_owner(config.parent, lambda: _gather(config, logs), _Found)
    name = f"fogline-diag-{found.gateway}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    path = folder / f"{name}.tar.gz"
    try:
        with _create(path) as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
            for member, data in found.members:
                entry = tarfile.TarInfo(f"{name}/{member}")
                entry.size, entry.mtime, entry.mode = len(data), int(time.time()), 0o600
                archive.addfile(entry, io.BytesIO(data))
    except OSError as error:
        raise Misconfigured(f"cannot write {path}: {error.strerror or error}. Name another folder with --out") from None
    return path


class _Found(msgspec.Struct):
    """What goes into the archive, without secrets."""

    gateway: str
    members: list[tuple[str, bytes]]


def _gather(config: Path, logs: list[tuple[str, bytes]]) -> _Found:
    try:
        settings = load(config)
    except Misconfigured:
        settings = None
    hide = _Redactor(settings)
    members = [(member, hide(content)) for member, content in (*_members(config, settings), *logs)]
    return _Found(settings.gateway if settings is not None else "unknown", members)


def _logs() -> Iterator[tuple[str, bytes]]:
    lines = ("--lines", str(JOURNAL_LINES), "--no-pager", "--output", "short-iso")
    yield "journal.txt", _output("journalctl", "--unit", UNIT, *lines)
    yield "kernel.txt", _output("dmesg", "--ctime")


def _create(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb")


def _members(config: Path, settings: EdgeSettings | None) -> Iterator[tuple[str, bytes]]:
    yield "doctor.json", _json([each._asdict() for each in diagnose(config)])
    yield "settings.json", _json(_settings(config, settings))
    if settings is None:
        return
    folder = Path(settings.data)
    yield "status.json", _json(_or_error(lambda: read_status(folder)))
    yield "machine.json", _json(msgspec.to_builtins(read_machine(folder)))
    files = {each.name: each.stat().st_size for each in sorted(folder.glob("*")) if each.is_file()}
    yield "files.json", _json(files)


def _json(value: object) -> bytes:
    return json.dumps(value, indent=1, ensure_ascii=False).encode()


def _or_error(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except FoglineError as error:
        return {"error": str(error)}


def _settings(config: Path, settings: EdgeSettings | None) -> Any:
    """Return valid settings, whose keys are known to hold no secret, or else only the names of the keys."""
    if settings is not None:
        return _without_logins(msgspec.to_builtins(settings))
    try:
        return _names(tomllib.loads(read_text(config, "settings")))
    except (Misconfigured, tomllib.TOMLDecodeError) as error:
        return {"error": f"{config} cannot be read: {type(error).__name__}"}


def _without_logins(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: "..." if name == "username" and each else _without_logins(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_without_logins(each) for each in value]
    return re.sub(r"//[^/@]*@", "//...@", value) if isinstance(value, str) else value


def _names(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _names(each) for name, each in value.items()}
    return [_names(each) for each in value] if isinstance(value, list) else "..."


def _output(*command: str) -> bytes:
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_COMMAND_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{command[0]}: {error}\n".encode()
    return done.stdout + done.stderr


class _Redactor:
    """Replaces each line of the files with secrets, wherever it occurs: also what a log repeats by accident."""

    def __init__(self, settings: EdgeSettings | None) -> None:
        lines: set[bytes] = set()
        for path in _files(msgspec.to_builtins(settings)) if settings is not None else ():
            try:
                text = Path(path).read_bytes()
            except OSError:
                continue
            for line in text.splitlines():
                lines |= {line.strip(), line.strip().partition(b":")[2]}  # `user:hash` of a password file
        secrets = {each for each in lines if len(each) >= _SHORTEST and not each.startswith((b"-----", b"# "))}
        escaped = secrets | {json.dumps(each.decode("utf-8", "replace"), ensure_ascii=False)[1:-1].encode() for each in secrets}
        longest_first = sorted(escaped, key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, longest_first))) if longest_first else None

    def __call__(self, data: bytes) -> bytes:
        return data if self._pattern is None else self._pattern.sub(_HIDDEN, data)


def _files(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, each in value.items():
            if name in _SECRET_KEYS and isinstance(each, str):
                yield each
            else:
                yield from _files(each)
    elif isinstance(value, list):
        for each in value:
            yield from _files(each)
