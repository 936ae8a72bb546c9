"""The file with the keys of devices that encrypt their advertisements (`[flow] ble_keys`): TOML, address or name = hex key.

A key has 32 digits, or 24 for old Xiaomi devices. Only its owner may read the file. No error message shows a key.
"""

import os
import re
import stat
import tomllib
from pathlib import Path

from fogline.address import is_identifier, shown
from fogline.errors import Misconfigured
from fogline_cloud.flows.parsers.ble.keys import NO_KEYS, DeviceKeys

MAX_BYTES = 1 << 20
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_KEY = re.compile(r"[0-9a-fA-F]{24}|[0-9a-fA-F]{32}")
_LINE_AND_COLUMN = re.compile(r"\(at [^()]*\)$")


def load_keys(path: str | None) -> DeviceKeys:
    """Return the keys in the file, none if `path` is `None`. Raises `Misconfigured`, one line that shows no key."""
    if path is None:
        return NO_KEYS
    found = _read(Path(path))
    keys: dict[str, bytes] = {}
    for name, key in found.items():
        if not is_identifier(name):
            raise Misconfigured(f"{path}: {shown(name)} is neither an address nor a device name")
        if not isinstance(key, str) or _KEY.fullmatch(key) is None:
            raise Misconfigured(f"{path}: the key of {name} is not 32 hex digits in quotes (nor 24)")
        if keys.setdefault(name.upper(), bytes.fromhex(key)) != bytes.fromhex(key):
            raise Misconfigured(f"{path}: there are two keys of {name}")
    return DeviceKeys(keys)


def _read(path: Path) -> dict[str, object]:
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if mode & _OTHERS:
                raise Misconfigured(f"{path}: others than its owner may read or write it (mode {mode:04o}): chmod 600 {path}")
            text = file.read(MAX_BYTES + 1)
        if len(text) > MAX_BYTES:
            raise Misconfigured(f"{path}: more than {MAX_BYTES} bytes of keys")
        return tomllib.loads(text.decode("utf-8-sig"))
    except OSError as error:
        raise Misconfigured(f"[flow] ble_keys = {path}: the file cannot be read: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        found = _LINE_AND_COLUMN.search(str(error))
        raise Misconfigured(f"{path}: this is not TOML {found[0] if found else ''}".rstrip()) from None
    except UnicodeDecodeError:
        raise Misconfigured(f"{path}: this is not UTF-8") from None
