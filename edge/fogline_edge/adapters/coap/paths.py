"""Device and lane of a request path: the paths of Eclipse Hono's CoAP adapter, and the patterns of the settings.

| path | means |
|---|---|
| `telemetry/{tenant}/{device}`, `t//{device}` | that device, lane telemetry; an empty tenant is the gateway's own |
| `event/{tenant}/{device}`, `e//{device}` | the same, lane alarm |
| `telemetry`, `t`, `event`, `e` | the device whose key the request has; refused without one |
| `command_response/{tenant}/{device}/{command id}` | the device's reply to a command |
| `command/{tenant}/{device}`, `c//{device}` | the commands of that device, to observe |
| a pattern of the settings, such as `plant/{device}/#` | the device at `{device}`, the lane of the entry |

A device name that is not an identifier is escaped (`fogline.address`): `t//Küche` is device `K:C3:BCche`.
"""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from fogline.address import check_identifier, device_identifier, shown
from fogline.errors import Poison
from fogline.events.event import Lane
from fogline_edge.adapters.coap.wire import Code, RequestRefused
from fogline_edge.profiles.patterns import compile_pattern
from fogline_edge.settings import PathSettings

MAX_PATH = 1024
"""Longest path, in characters."""
RESPONSES = "command_response"

_LANES = {"telemetry": Lane.TELEMETRY, "t": Lane.TELEMETRY, "event": Lane.ALARM, "e": Lane.ALARM}
_TYPES = {Lane.TELEMETRY: "telemetry", Lane.ALARM: "alarm"}


class PathTarget(msgspec.Struct, frozen=True):
    """Target of an event. `content_type`: the one of the settings for this path."""

    device: str
    channel: str
    lane: Lane
    type: str
    content_type: str | None = None


class ResponsePath(msgspec.Struct, frozen=True):
    """Target of a device's reply to a command."""

    device: str
    command_id: str


class CommandPath(msgspec.Struct, frozen=True):
    """The commands of a device."""

    device: str


class Paths:
    """All paths of a gateway. Raises `Misconfigured` for an invalid pattern."""

    def __init__(self, tenant: str, patterns: Iterable[PathSettings]) -> None:
        self._tenant = tenant
        self._patterns = [
            (compile_pattern("coap.paths: path", each.path.strip("/"), needs_device=True, is_topic=False), each)
            for each in patterns
        ]

    def resolve(self, path: Sequence[str], sender: str = "") -> PathTarget | ResponsePath | CommandPath:
        """Return the target of a path. `sender`: as in `Exchange`. Raises `RequestRefused` (4.04, 4.00, 4.01, 4.03)."""
        joined = "/".join(path)
        if len(joined) > MAX_PATH or not joined.isprintable() or any("/" in each for each in path):
            raise RequestRefused(
                Code.NOT_FOUND, "bad-path", f"path {shown(joined)} has more than {MAX_PATH} characters, or unprintable ones"
            )
        match path:
            case [first] if first in _LANES and sender:
                return PathTarget(sender, joined, _LANES[first], _TYPES[_LANES[first]])
            case [first] if first in _LANES:
                raise RequestRefused(Code.UNAUTHORIZED, "no-device", f"without credentials: /{first}/{{tenant}}/{{device}}")
            case [first, tenant, device] if first in _LANES:
                lane = _LANES[first]
                return PathTarget(self._device(tenant, device), joined, lane, _TYPES[lane])
            case ["command" | "c", tenant, device]:
                return CommandPath(self._device(tenant, device))
            case ["command_response", tenant, device, command_id]:
                return ResponsePath(self._device(tenant, device), _checked(check_identifier, command_id, "command id"))
        return self._free(joined)

    def _device(self, tenant: str, device: str) -> str:
        if tenant not in ("", self._tenant):
            _checked(check_identifier, tenant, "tenant")
            raise RequestRefused(Code.FORBIDDEN, "foreign-tenant", f"tenant {shown(tenant)} is not {self._tenant}")
        return _checked(device_identifier, device, "device")

    def _free(self, path: str) -> PathTarget:
        for matches, rule in self._patterns:
            match = matches(path)
            if match is not None:
                device = _checked(device_identifier, match[1], "device")
                return PathTarget(device, path, rule.lane, rule.type, rule.content_type)
        raise RequestRefused(Code.NOT_FOUND, "bad-path", f"no pattern of coap.paths fits path {shown(path)}")


def _checked(check: Callable[[str, str], str], text: str, what: str) -> str:
    try:
        return check(text, what)
    except Poison as error:
        raise RequestRefused(Code.BAD_REQUEST, error.reason, str(error)) from None
