"""Reads TOML settings files into types. An error names the file, the key and the expected value."""

import tomllib
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from fogline.documents.document_error import TOML, explained
from fogline.errors import Misconfigured
from fogline.process.files.user_file import read_text
from fogline.transport.loopback import is_loopback

T = TypeVar("T", bound=msgspec.Struct)


def load_settings(path: Path, kind: type[T], what: str = "") -> T:
    """Return the settings of a file as `kind`, a struct that forbids unknown fields. `what`, errors: as of `load_toml`."""
    return convert_settings(load_toml(path, what), kind, str(path))


def load_toml(path: Path, what: str = "") -> dict[str, Any]:
    """Return the content of a TOML file. Raises `Misconfigured`, one line.

    `what`: the setting or option that names the file; "" for the file of `--config`.
    """
    try:
        return tomllib.loads(read_text(path, what or "settings", "" if what else "Name another file with --config"))
    except tomllib.TOMLDecodeError as error:
        raise Misconfigured(f"{path}: this is not TOML: {error}") from None


def convert_settings(raw: dict[str, Any], kind: type[T], where: str) -> T:
    """Return decoded TOML as `kind`. Raises `Misconfigured`, whose text names `where`."""
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise Misconfigured(f"{where}: {explained(error, kind, TOML)}") from None


def split_endpoint(text: str, key: str) -> tuple[str, int]:
    """Return host and port of `host:port` or `[v6]:port`. Raises `Misconfigured`, whose text names `key`."""
    before, colon, port = text.rpartition(":")
    host = before.strip("[]")
    if not colon or not is_host(host) or not port.isascii() or not port.isdecimal() or not 0 <= int(port) <= 65535:
        raise Misconfigured(f"{key} = {text!r}: expected host:port, for example 127.0.0.1:5672")
    return host, int(port)


def is_host(host: str) -> bool:
    """Return True if a host can have this name: the resolver raises errors of encodings for others."""
    try:
        return bool(host.encode("idna")) and all("!" <= each <= "~" or not each.isascii() for each in host)
    except UnicodeError:
        return False


def require_loopback(host: str, key: str) -> str:
    """Return `host` if it is a loopback address: without credentials, nothing else is safe. Raises `Misconfigured`."""
    if not is_loopback(host):
        raise Misconfigured(f"{key} = {host!r}: without credentials only loopback addresses are safe; use 127.0.0.1")
    return host
