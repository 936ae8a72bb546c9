"""The file of the credentials, `credentials.json` in the data folder. Only its owner may read it (mode 600).

It is not in the outbox's file, whose copies go to other places. A backup leaves it out: the bridge sends it again.
"""

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from fogline.errors import Misconfigured, Poison
from fogline.gateway.device_credentials import DeviceCredentials, decode_credentials
from fogline.process.files.durable_file import replace_file, sync_path
from fogline_edge.credentials.credential_store import CredentialStore

FILE = "credentials.json"
LOST = "credentials.lost"
"""A file that was set aside; or, empty, the sign that a gateway was restored, and had credentials perhaps."""

_log = logging.getLogger("fogline.credentials")


class _Content(msgspec.Struct, frozen=True):
    owner: str  # tenant and gateway
    devices: list[msgspec.Raw]


class CredentialState(NamedTuple):
    """What a gateway has for `status`. `complete`: False if messages without protection are refused for all devices."""

    devices: int
    keys: int
    complete: bool

    @property
    def sentence(self) -> str:
        """The state in words."""
        if self.complete:
            return f"keys of devices: {self.keys:,} of {self.devices:,} devices"
        return "keys of devices: lost; CoAP messages without protection are refused until a bridge sends them"


def read_state(folder: Path) -> CredentialState | None:
    """Return the state in a data folder, and change nothing; None without credentials."""
    lost = (folder / LOST).exists()
    try:
        content = msgspec.json.decode((folder / FILE).read_bytes(), type=_Content)
        found = [decode_credentials(bytes(each)) for each in content.devices]
    except (OSError, Poison, msgspec.MsgspecError, UnicodeDecodeError):
        return CredentialState(0, 0, complete=False) if lost or (folder / FILE).exists() else None
    return CredentialState(len(found), sum(len(each.keys) for each in found), complete=True)


def note_restored(folder: Path) -> None:
    """Have a restored gateway refuse messages without protection until a bridge has sent the credentials. Raises `OSError`."""
    if not (folder / FILE).exists():
        (folder / LOST).touch(0o600)


class CredentialFile:
    """The file of one gateway. `owner`: its tenant and name."""

    def __init__(self, folder: Path, owner: str) -> None:
        self._path = folder / FILE
        self._owner = owner

    def read(self) -> CredentialStore:
        """Return what the file has. One that is damaged, or of another gateway, is set aside, and the store is not complete.

        Raises `Misconfigured` if the disk fails.
        """
        try:
            content = msgspec.json.decode(self._path.read_bytes(), type=_Content)
            if content.owner == self._owner:
                return CredentialStore([decode_credentials(bytes(each)) for each in content.devices])
            why = f"it belongs to gateway {content.owner!a}"
        except FileNotFoundError:
            return CredentialStore(complete=not self._path.with_name(LOST).exists())
        except OSError as error:
            raise Misconfigured(f"{self._path} cannot be read: {error.strerror}") from None
        except (Poison, msgspec.MsgspecError, UnicodeDecodeError) as error:
            why = str(error) if isinstance(error, Poison) else "it is damaged"
        self._path.replace(self._path.with_name(LOST))
        until = "Until a bridge has sent the credentials again, CoAP messages without protection are refused"
        _log.error("%s is set aside: %s. %s", self._path, why, until)
        return CredentialStore(complete=False)

    def write(self, devices: Iterable[DeviceCredentials]) -> None:
        """Write all credentials durably. Raises `OSError`."""
        content = {"owner": self._owner, "devices": list(devices)}
        replace_file(self._path, msgspec.json.encode(content) + b"\n")
        self._path.with_name(LOST).unlink(missing_ok=True)
        sync_path(self._path.parent)
