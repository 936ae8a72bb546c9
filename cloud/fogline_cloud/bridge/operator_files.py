"""The files of the operators that a bridge reads: permissions, types of devices, the key that signs commands."""

import logging
from collections.abc import Mapping
from functools import partial

from fogline.commands.signature import Signer, read_signer
from fogline.process.files.tls_files import ReadAgain
from fogline.process.files.user_file import read_text
from fogline_cloud.access.access_file import Permissions, loosened, read_permissions
from fogline_cloud.access.policy import Policy
from fogline_cloud.devices.types_file import read_types
from fogline_cloud.settings import BridgeSettings, CloudSettings, CommandPolicySettings, DeviceSettings

_log = logging.getLogger("fogline.bridge")


def open_access(settings: BridgeSettings) -> ReadAgain[Permissions] | None:
    """Return the permissions of clients, None if all are allowed. Raises `Misconfigured`."""
    if settings.access is not None:
        return ReadAgain(partial(read_permissions, settings.access), [settings.access], loosened)
    if settings.tls is not None:
        _log.warning("bridge.access is not set: every client that logs in may do everything")
    return None


def open_types(settings: DeviceSettings) -> ReadAgain[Mapping[str, str]] | None:
    """Return the types of devices with their commands, None without such a file. Raises `Misconfigured`."""
    if settings.types is None:
        return None
    return ReadAgain(partial(read_types, settings.types), [settings.types], _emptied)


def _emptied(former: Mapping[str, str], new: Mapping[str, str]) -> str:
    """Return why a file without types must not replace the former one: devices would take any command."""
    return (
        "it has no types any more, as if it were half written; if that is meant, restart the bridge"
        if former and not new
        else ""
    )


def policy_of(settings: CloudSettings, access: ReadAgain[Permissions] | None) -> Policy:
    """Return who may do what, by the permissions as they are when it is asked."""
    names = settings.bridge.gateways
    known = frozenset(names) if names is not None else None
    return Policy(settings.tenant, settings.shards, known, lambda: access.value if access is not None else None)


def open_signer(settings: CommandPolicySettings) -> Signer:
    """Return what signs commands. Raises `Misconfigured`."""
    if settings.signing_key is None:
        return Signer()
    where = f"commands.signing_key = {settings.signing_key!r}"
    text = read_text(settings.signing_key, "commands.signing_key", "Make a key with: fogline command key")
    return read_signer(settings.key_id, text, where)
