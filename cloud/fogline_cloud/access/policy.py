"""The one place that decides what a peer may do. Every handler asks `Policy` before it acts for a peer."""

from collections.abc import Callable
from enum import StrEnum

import msgspec

from fogline.address import (
    Address,
    CommandAddress,
    CommandResponse,
    Control,
    DeviceAddress,
    EnrollAddress,
    FlowAddress,
    HelloAddress,
    IngestAddress,
    ParserAddress,
    Relay,
    Reports,
    shard_of,
)
from fogline_cloud.access.access_file import Permissions, Quota
from fogline_cloud.access.principal import KAFKA, Principal, PrincipalKind


class Action(StrEnum):
    """An action on an address."""

    SEND = "send"
    RECEIVE = "receive"


class Policy(msgspec.Struct, frozen=True):
    """The permissions of all principals. `gateways`: the known ones, `None` for any.

    `access` returns what `access.toml` says now. Without that file, every client may send all commands and
    events, and receive all events, and none may deploy a parser.
    """

    tenant: str
    shards: int
    gateways: frozenset[str] | None = None
    access: Callable[[], Permissions | None] = lambda: None

    def knows(self, principal: Principal) -> bool:
        """Return True if the principal is known here."""
        is_client = principal.kind in (PrincipalKind.CLIENT, PrincipalKind.DEVICE)
        return principal.tenant == self.tenant and (is_client or self.gateways is None or principal.name in self.gateways)

    def may(self, principal: Principal, action: Action, subject: Address, command: str = "") -> bool:
        """Return True if `principal` may do `action` at `subject`. A subject without a device stands for any device.

        A gateway may act only for itself. `command` is the name of the command that is sent; "" for any.
        At a `CommandAddress`, `RECEIVE` reads commands: whoever may send them may. At a `DeviceAddress`, `RECEIVE` reads the
        device; `SEND` sets it, or with `command` its desired state. At a `ParserAddress`, `SEND` deploys.
        At a `FlowAddress`, `SEND` has events parsed again: it is for those who oversee the tenant.
        """
        if not self.knows(principal) or subject.tenant != self.tenant:
            return False
        match principal.kind:
            case PrincipalKind.CLIENT if principal.proof == KAFKA:
                return action is Action.SEND and isinstance(subject, CommandAddress | Relay)
            case PrincipalKind.CLIENT:
                return self._client_may(principal.name, action, subject, command)
            case PrincipalKind.DEVICE:
                own = isinstance(subject, Reports) and subject.device in ("", principal.name)
                return action is Action.SEND and (own or isinstance(subject, Relay))
            case PrincipalKind.ENROLLEE:
                return isinstance(subject, EnrollAddress) and subject.gateway == principal.name
            case _:
                return self._gateway_may(principal.name, action, subject)

    def may_speak_for(self, gateway: str, device: str) -> bool:
        """Return True if a gateway may send events of a device. Thread-safe."""
        access = self.access()
        return access is None or not access.binds_devices or access.may_speak_for(gateway, device)

    def may_change_keys(self, principal: Principal, device: str) -> bool:
        """Return True if a client may add, rotate and revoke keys of a device, and read which it has."""
        access = self.access()
        is_client = principal.kind is PrincipalKind.CLIENT and principal.proof != KAFKA and self.knows(principal)
        return is_client and (access is None or access.may_change_keys(principal.name, device))

    def needs_approval(self, device: str, command: str) -> bool:
        """Return True if a command waits until a second operator has approved it."""
        access = self.access()
        return access is not None and access.needs_approval(device, command)

    def oversees(self, principal: Principal) -> bool:
        """Return True if a client may see what is about the whole tenant: the audit, and the flow with what it cannot read."""
        access = self.access()
        is_client = principal.kind is PrincipalKind.CLIENT and principal.proof != KAFKA and self.knows(principal)
        return is_client and (access is None or access.is_admin(principal.name))

    def quota(self, principal: Principal) -> Quota | None:
        """Return the quota of a peer, if it has one. Kafka has quotas of its own for those who write to it."""
        access = self.access() if principal.proof != KAFKA else None
        return access.quota(principal.kind, principal.name) if access is not None else None

    def _client_may(self, name: str, action: Action, subject: Address, command: str) -> bool:  # noqa: PLR0911 - one for each kind
        access = self.access()
        match subject:
            case CommandResponse():
                return action is Action.RECEIVE and (access is None or access.may_receive_replies(name))
            case CommandAddress(device=device):
                return access is None or access.may_command(name, device, command)
            case DeviceAddress(device=device):
                return access is None or self._device_access(access, name, action, device, command)
            case Reports(device=device):
                receives = action is Action.RECEIVE
                return access is None or (access.may_consume if receives else access.may_report)(name, device)
            case FlowAddress():
                return action is Action.SEND and (access is None or access.is_admin(name))
            case ParserAddress(parser=parser):
                return action is Action.SEND and access is not None and access.may_deploy(name, parser)
            case _:
                return isinstance(subject, Relay) and action is Action.SEND

    @staticmethod
    def _device_access(access: Permissions, name: str, action: Action, device: str, command: str) -> bool:
        """Return True if a client may read a device, set or forget it, or, with `command`, have its desired state sent."""
        if command:
            return action is Action.SEND and access.may_command(name, device, command)
        manages = access.may_manage(name, device)
        if action is Action.RECEIVE or not device:
            return manages or access.may_command(name, device, "")
        return manages

    def _gateway_may(self, name: str, action: Action, subject: Address) -> bool:
        match subject:
            case HelloAddress():
                return action is Action.SEND
            case IngestAddress(shard=shard):
                return action is Action.SEND and shard == shard_of(name, self.shards)
            case Control(gateway=gateway):
                return action is Action.RECEIVE and gateway == name
            case _:
                return False
