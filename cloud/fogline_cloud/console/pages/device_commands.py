"""The commands that a device takes, and that a user may send to it. The registry and `devices.types` say the first."""

from collections.abc import Mapping
from typing import Any

import msgspec

from fogline.address import CommandAddress
from fogline_cloud.access.policy import Action
from fogline_cloud.access.principal import Principal
from fogline_cloud.api.context import ApiContext


class DeviceCommands:
    """Commands by device. `types`: the text of the commands of each type (`fogline_cloud.devices.types_file`)."""

    def __init__(self, context: ApiContext, types: Mapping[str, str]) -> None:
        self._context = context
        self._types = types

    def offered(self, principal: Principal, device: str) -> list[str] | None:
        """Return the commands to offer, none if the device takes any: a name is typed then. `None`: the user may send none."""
        if not self._may(principal, device, ""):
            return None
        known = self._schemas(device)
        names = [each for each in known if self._may(principal, device, each)]
        return names if names or not known else None

    def schema_of(self, device: str, name: str) -> Any:
        """Return the JSON Schema of a command's arguments, `None` if there is none."""
        return self._schemas(device).get(name)

    def _schemas(self, device: str) -> dict[str, Any]:
        entry = self._context.devices.get(device)
        if entry is None:
            return {}
        text = (entry.record.commands if entry.record is not None else "") or self._types.get(entry.type, "")
        schemas: dict[str, Any] = msgspec.json.decode(text) if text else {}
        return schemas

    def _may(self, principal: Principal, device: str, name: str) -> bool:
        return self._context.policy.may(principal, Action.SEND, CommandAddress(self._context.tenant, device), name)
