"""The file `access.toml`: what clients may do, which gateways may speak for a device, and how much a peer may do."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from fogline.process.files.settings_file import load_settings
from fogline_cloud.access.principal import PrincipalKind

Pattern = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._:\-*?]{1,64}$")]
"""A name, in which `*` stands for any characters and `?` for one."""
Patterns = Annotated[list[Pattern], Meta(min_length=1)]
_CACHED = 65_536


class _Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table, in which an unknown key is an error."""


class OperatorGrant(_Strict, frozen=True):
    """`[[operator]]`: clients that send commands and get the replies to their own."""

    name: Pattern
    """Name of the certificate, or user name."""
    devices: Patterns
    commands: Patterns = msgspec.field(default_factory=lambda: ["*"])


class ServiceGrant(_Strict, frozen=True):
    """`[[service]]`: clients that send events for devices."""

    name: Pattern
    devices: Patterns


class ManagerGrant(_Strict, frozen=True):
    """`[[manager]]`: clients that set and forget devices in the registry."""

    name: Pattern
    devices: Patterns
    credentials: bool = False
    """They may change the keys of these devices too."""


class ConsumerGrant(_Strict, frozen=True):
    """`[[consumer]]`: clients that receive events of devices."""

    name: Pattern
    devices: Patterns = msgspec.field(default_factory=lambda: ["*"])


class DeployerGrant(_Strict, frozen=True):
    """`[[deployer]]`: clients that deploy parsers, which the flow runs."""

    name: Pattern
    parsers: Patterns


class AdminGrant(_Strict, frozen=True):
    """`[[admin]]`: clients that may send every command, send and receive every event, and manage every device.

    They deploy no parsers, because that runs code.
    """

    name: Pattern


class DeviceBinding(_Strict, frozen=True):
    """`[[device]]`: the gateways that may send events of a device. The first matching entry counts."""

    name: Pattern
    gateways: Patterns


class ApprovalRule(_Strict, frozen=True):
    """`[[approval]]`: commands that wait until a second operator has approved them."""

    devices: Patterns
    commands: Patterns = msgspec.field(default_factory=lambda: ["*"])


class Quota(_Strict, frozen=True):
    """`[[quota]]`: how much each peer of a name may do, over all of its connections. The first matching entry counts."""

    kind: Literal["gateway", "device", "client"]
    name: Pattern = "*"
    events_s: Annotated[float, Meta(gt=0)] | None = None
    """Events per second."""
    bytes_s: Annotated[float, Meta(gt=0)] | None = None
    """Bytes of messages per second."""
    commands_min: Annotated[float, Meta(gt=0)] | None = None
    """Commands per minute."""
    links: Annotated[int, Meta(ge=1)] | None = None
    """Links that are open at a time."""
    connections: Annotated[int, Meta(ge=1)] | None = None
    """Connections that are open at a time. A gateway has one in any case."""


class AccessFile(_Strict, frozen=True):
    """The tables of `access.toml`. What no table allows is refused."""

    devices_without_entry: Literal["any", "none"] = "any"
    """Which gateways may send events of a device that no `[[device]]` names."""
    operator: list[OperatorGrant] = msgspec.field(default_factory=list)
    service: list[ServiceGrant] = msgspec.field(default_factory=list)
    manager: list[ManagerGrant] = msgspec.field(default_factory=list)
    consumer: list[ConsumerGrant] = msgspec.field(default_factory=list)
    deployer: list[DeployerGrant] = msgspec.field(default_factory=list)
    admin: list[AdminGrant] = msgspec.field(default_factory=list)
    device: list[DeviceBinding] = msgspec.field(default_factory=list)
    approval: list[ApprovalRule] = msgspec.field(default_factory=list)
    quota: list[Quota] = msgspec.field(default_factory=list)


class Permissions:
    """The decisions that follow from an `AccessFile`. Pure and thread-safe."""

    def __init__(self, file: AccessFile) -> None:
        self._file = file
        self.binds_devices = bool(file.device) or file.devices_without_entry == "none"
        """False if any gateway may send events of any device."""
        self.may_speak_for = lru_cache(_CACHED)(self._may_speak_for)
        """`may_speak_for(gateway, device)` returns True if the gateway may send events of the device, or is it."""

    def may_command(self, client: str, device: str, command: str) -> bool:
        """Return True if a client may send this command to this device; "" for any device, or any command."""
        if self.is_admin(client):
            return True
        return any(
            fnmatchcase(client, each.name) and _any(device, each.devices) and _any(command, each.commands)
            for each in self._file.operator
        )

    def needs_approval(self, device: str, command: str) -> bool:
        """Return True if this command to this device waits for a second operator."""
        return any(_any(device, each.devices) and _any(command, each.commands) for each in self._file.approval)

    @property
    def has_approvals(self) -> bool:
        """True if some command needs an approval."""
        return bool(self._file.approval)

    def may_receive_replies(self, client: str) -> bool:
        """Return True if a client may receive replies to its commands."""
        return self.may_command(client, "", "")

    def may_report(self, client: str, device: str) -> bool:
        """Return True if a client may send events of this device; "" for any."""
        if self.is_admin(client):
            return True
        return any(fnmatchcase(client, each.name) and _any(device, each.devices) for each in self._file.service)

    def may_manage(self, client: str, device: str) -> bool:
        """Return True if a client may set and forget this device in the registry; "" for any."""
        if self.is_admin(client):
            return True
        return any(fnmatchcase(client, each.name) and _any(device, each.devices) for each in self._file.manager)

    def may_change_keys(self, client: str, device: str) -> bool:
        """Return True if a client may add, rotate and revoke keys of this device."""
        if self.is_admin(client):
            return True
        managers = (each for each in self._file.manager if each.credentials)
        return any(fnmatchcase(client, each.name) and _any(device, each.devices) for each in managers)

    def may_consume(self, client: str, device: str) -> bool:
        """Return True if a client may receive events of this device; "" for any. Thread-safe."""
        if self.is_admin(client):
            return True
        return any(fnmatchcase(client, each.name) and _any(device, each.devices) for each in self._file.consumer)

    def may_deploy(self, client: str, parser: str) -> bool:
        """Return True if a client may deploy this parser. An admin may not, unless a `[[deployer]]` names it too."""
        return any(fnmatchcase(client, each.name) and _any(parser, each.parsers) for each in self._file.deployer)

    def quota(self, kind: PrincipalKind, name: str) -> Quota | None:
        """Return the quota of a peer, if it has one."""
        return next((each for each in self._file.quota if each.kind == kind and fnmatchcase(name, each.name)), None)

    def is_admin(self, client: str) -> bool:
        """Return True if an `[[admin]]` entry names a client."""
        return any(fnmatchcase(client, each.name) for each in self._file.admin)

    def _may_speak_for(self, gateway: str, device: str) -> bool:
        if device == gateway:
            return True
        for each in self._file.device:
            if fnmatchcase(device, each.name):
                return _any(gateway, each.gateways)
        return self._file.devices_without_entry == "any"


def read_permissions(path: str) -> Permissions:
    """Read `access.toml`. Raises `Misconfigured`, which names the file and the key."""
    return Permissions(load_settings(Path(path), AccessFile, "bridge.access"))


def loosened(former: Permissions, new: Permissions) -> str:
    """Return why a file that was changed must not replace the former one of a running process, or "".

    A file that is empty, or cut off before its first `[[device]]`, would let every gateway speak for every device. One that is
    cut off before its first `[[approval]]` would let one operator do what takes two.
    """
    if former.binds_devices and not new.binds_devices:
        return "it binds no device to a gateway any more, as if it were half written; if that is meant, restart the process"
    if former.has_approvals and not new.has_approvals:
        return "no command needs an approval any more, as if it were half written; if that is meant, restart the process"
    return ""


def _any(name: str, patterns: Sequence[str]) -> bool:
    return not name or any(fnmatchcase(name, each) for each in patterns)
