"""Reads TOML settings files into types. An error names the file, the key and the expected value."""

import re
import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

import msgspec

from fogline.errors import Misconfigured

T = TypeVar("T", bound=msgspec.Struct)


def load_settings(path: Path, kind: type[T]) -> T:
    """Return the settings of a file as `kind`, a struct that forbids unknown fields. Raises `Misconfigured`, one line."""
    return convert_settings(load_toml(path), kind, str(path))


def load_toml(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file. Raises `Misconfigured`, one line."""
    try:
        return tomllib.loads(path.read_text("utf-8-sig"))
    except FileNotFoundError:
        raise Misconfigured(f"{path}: there is no such settings file; name another one with --config") from None
    except (OSError, UnicodeDecodeError) as error:
        raise Misconfigured(f"{path}: the settings cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise Misconfigured(f"{path}: this is not TOML: {error}") from None


def convert_settings(raw: dict[str, Any], kind: type[T], where: str) -> T:
    """Return decoded TOML as `kind`. Raises `Misconfigured`, whose text names `where`."""
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise Misconfigured(f"{where}: {_readable(str(error))}{_meant(str(error), kind)}") from None


def _meant(message: str, kind: Any) -> str:
    """Return the known key that an unknown one may stand for, as an addition to the error; "" if there is none."""
    unknown = re.search(r"unknown field `([^`]*)`", message)
    if unknown is None:
        return ""
    path = re.findall(r"\.(\w+)", message.partition(" - at `$")[2])
    meant = get_close_matches(unknown[1], _keys_at(kind, path), 1)
    return f"; did you mean {meant[0]}?" if meant else ""


def _keys_at(kind: Any, path: list[str]) -> list[str]:
    """Return the keys of the table at a path of settings of type `kind`."""
    structs = [each for each in (kind, *get_args(kind), *map(get_origin, get_args(kind))) if isinstance(each, type)]
    struct = next((each for each in structs if issubclass(each, msgspec.Struct)), None)
    if struct is None:
        inner = [_keys_at(each, path) for each in get_args(kind)]
        return next((each for each in inner if each), [])
    if not path:
        return [each.encode_name for each in msgspec.structs.fields(struct)]
    found = next((each.type for each in msgspec.structs.fields(struct) if each.encode_name == path[0]), None)
    return _keys_at(found, path[1:]) if found is not None else []


def _readable(message: str) -> str:
    """Translate an error of msgspec (``Object contains unknown field `x` - at `$.mqtt```) into the terms of a TOML file."""
    what, _, path = message.partition(" - at `")
    key = path.rpartition("$")[2].rstrip("`").lstrip(".").replace("[...]", "[]")
    what = what.replace("Object contains unknown field", "unknown key").replace("Object missing required field", "missing key")
    return f"{what}" + (f" in [{key}]" if key and "key" in what else f" at key {key}" if key else "")


def split_endpoint(text: str, key: str) -> tuple[str, int]:
    """Return host and port of `host:port` or `[v6]:port`. Raises `Misconfigured`, whose text names `key`."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdecimal() or not 0 <= int(port) <= 65535:
        raise Misconfigured(f"{key} = {text!r}: expected host:port, for example 127.0.0.1:5672")
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """Return True for an address of this machine that no other machine reaches."""
    return host in ("localhost", "::1") or host.startswith("127.")


def require_loopback(host: str, key: str) -> str:
    """Return `host` if it is a loopback address: without credentials, nothing else is safe. Raises `Misconfigured`."""
    if not is_loopback(host):
        raise Misconfigured(f"{key} = {host!r}: without credentials only loopback addresses are safe; use 127.0.0.1")
    return host
