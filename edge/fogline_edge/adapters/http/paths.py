"""Device and lane of a request path: the resources of Eclipse Hono's HTTP adapter, and the patterns of the settings.

| path | means |
|---|---|
| `/telemetry`, `/event` (`/t`, `/e`) | the device that logged in; lane telemetry, lane alarm |
| `/telemetry/{tenant}/{device}`, `/event//{device}` | that device; an empty tenant is the gateway's own |
| `/command/res/{command id}` | a reply of the device that logged in to a command |
| `/command/res/{tenant}/{device}/{command id}` | a reply of that device |
| a pattern of the settings, such as `/plant/{device}/#` | the device at `{device}`, the lane of the entry |

A device name that is not an identifier is escaped (`fogline.address`): `/t//K%C3%BCche` is device `K:C3:BCche`.
"""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from fogline.address import check_identifier, device_identifier, shown
from fogline.errors import Poison
from fogline.events.event import Lane
from fogline_edge.adapters.http.wire import HttpRefused
from fogline_edge.profiles.patterns import compile_pattern
from fogline_edge.settings import PathSettings

MAX_PATH = 1024
"""Longest path, in characters."""

_LANES = {"telemetry": Lane.TELEMETRY, "t": Lane.TELEMETRY, "event": Lane.ALARM, "e": Lane.ALARM}
_TYPES = {Lane.TELEMETRY: "telemetry", Lane.ALARM: "alarm"}


class EventPath(msgspec.Struct, frozen=True):
    """Target of an event. `device`: None for the one that logged in. `content_type`: the one of the settings for this path."""

    device: str | None
    channel: str
    lane: Lane
    type: str
    content_type: str | None = None


class ReplyPath(msgspec.Struct, frozen=True):
    """Target of a device's reply to a command. `device`: None for the one that logged in."""

    device: str | None
    command_id: str


class HttpPaths:
    """All paths of a gateway. Raises `Misconfigured` for an invalid pattern."""

    def __init__(self, tenant: str, patterns: Iterable[PathSettings]) -> None:
        self._tenant = tenant
        self._patterns = [
            (compile_pattern("http.paths: path", each.path.strip("/"), needs_device=True, is_topic=False), each)
            for each in patterns
        ]

    def resolve(self, path: Sequence[str]) -> EventPath | ReplyPath:
        """Return the target of a path. Raises `HttpRefused` (404, 400, 403)."""
        joined = "/".join(path)
        if len(joined) > MAX_PATH or not joined.isprintable() or any("/" in each for each in path):
            raise HttpRefused(404, "bad-path", f"path {shown(joined)} has more than {MAX_PATH} characters, or unprintable ones")
        match path:
            case [first] if first in _LANES:
                return EventPath(None, joined, _LANES[first], _TYPES[_LANES[first]])
            case [first, tenant, device] if first in _LANES:
                return EventPath(self._device(tenant, device), joined, _LANES[first], _TYPES[_LANES[first]])
            case ["command", "res", command_id]:
                return ReplyPath(None, _checked(check_identifier, command_id, "command id"))
            case ["command", "res", tenant, device, command_id]:
                return ReplyPath(self._device(tenant, device), _checked(check_identifier, command_id, "command id"))
        return self._by_pattern(joined)

    def _device(self, tenant: str, device: str) -> str:
        if tenant not in ("", self._tenant):
            raise HttpRefused(403, "foreign-tenant", f"tenant {shown(tenant)} is not {self._tenant}")
        return _checked(device_identifier, device, "device")

    def _by_pattern(self, path: str) -> EventPath:
        for matches, rule in self._patterns:
            match = matches(path)
            if match is not None:
                device = _checked(device_identifier, match[1], "device")
                return EventPath(device, path, rule.lane, rule.type, rule.content_type)
        raise HttpRefused(404, "bad-path", f"there is no path {shown('/' + path)}: /telemetry, /event, /command/res/...")


def _checked(check: Callable[[str, str], str], text: str, what: str) -> str:
    try:
        return check(text, what)
    except Poison as error:
        raise HttpRefused(400, error.reason, str(error)) from None
