"""Request paths to devices and lanes: those of Eclipse Hono's CoAP adapter, and the free ones of the settings.

| path | means |
|---|---|
| `telemetry/{tenant}/{device}`, `t//{device}` | that device, lane telemetry; an empty tenant is the gateway's own |
| `event/{tenant}/{device}`, `e//{device}` | the same, lane alarm |
| `telemetry`, `t`, `event`, `e` | the device that the client has proved to be: nobody can, so far |
| `command_response/{tenant}/{device}/{command id}` | what a device answers to a command |
| a pattern of the settings | as it says: `plant/{device}/#` |

A device's name that is no identifier is escaped (`profiles/names.py`): `t//Küche` is device `K:C3:BCche`.
"""

import re
from collections.abc import Iterable, Sequence

import msgspec

from fogline.address import check_identifier, shown
from fogline.errors import Misconfigured, Poison
from fogline.event import Lane
from fogline_edge.adapters.coap.wire import Code, Refusal
from fogline_edge.profiles.names import device_identifier
from fogline_edge.settings import PathSettings

MAX_PATH = 1024
"""The longest path, in characters, that becomes a channel."""
RESPONSES = "command_response"

_LANES = {"telemetry": Lane.TELEMETRY, "t": Lane.TELEMETRY, "event": Lane.ALARM, "e": Lane.ALARM}
_TYPES = {Lane.TELEMETRY: "telemetry", Lane.ALARM: "alarm"}


class Target(msgspec.Struct, frozen=True):
    """Where events are put. `content_type`: what the settings say of this path."""

    device: str
    channel: str
    lane: Lane
    type: str
    content_type: str | None = None


class Response(msgspec.Struct, frozen=True):
    """Where a device answers a command."""

    device: str
    command_id: str


class _Pattern:
    """One pattern of the settings, compiled."""

    def __init__(self, settings: PathSettings) -> None:
        self.settings = settings
        levels = settings.path.strip("/").split("/")
        words = [each for each in levels if each not in ("{device}", "+", "#")]
        if levels.count("{device}") != 1 or "#" in levels[:-1] or any(not each or set(each) & set("+#{}\0") for each in words):
            raise Misconfigured(
                f"coap.paths: path = {settings.path!r}: a segment is a word, + or {{device}} (exactly once), and # may end it"
            )
        parts = [{"{device}": "([^/]+)", "+": "[^/]*"}.get(each, re.escape(each)) for each in levels]
        if levels[-1] == "#":
            parts.pop()
            self.matches = re.compile("/".join(parts) + "(?:/.*)?").fullmatch
        else:
            self.matches = re.compile("/".join(parts)).fullmatch


class Paths:
    """All paths of one gateway. Raises `Misconfigured` for a pattern that is none."""

    def __init__(self, tenant: str, patterns: Iterable[PathSettings]) -> None:
        self._tenant = tenant
        self._patterns = [_Pattern(each) for each in patterns]

    def resolve(self, path: Sequence[str]) -> Target | Response:
        """What a path stands for. Raises `Refusal` (4.04, 4.00, 4.01, 4.03)."""
        joined = "/".join(path)
        if len(joined) > MAX_PATH or not joined.isprintable() or any("/" in each for each in path):
            raise Refusal(Code.NOT_FOUND, "bad-path", f"path {shown(joined)} is over {MAX_PATH} characters, or holds others")
        match path:
            case [first] if first in _LANES:
                raise Refusal(Code.UNAUTHORIZED, "no-device", f"without credentials: /{first}/{{tenant}}/{{device}}")
            case [first, tenant, device] if first in _LANES:
                lane = _LANES[first]
                return Target(self._device(tenant, device), joined, lane, _TYPES[lane])
            case ["command_response", tenant, device, command_id]:
                return Response(self._device(tenant, device), _identifier(command_id, "command id"))
        return self._free(joined)

    def _device(self, tenant: str, device: str) -> str:
        if tenant not in ("", self._tenant):
            _identifier(tenant, "tenant")
            raise Refusal(Code.FORBIDDEN, "foreign-tenant", f"tenant {shown(tenant)} is not {self._tenant}")
        return _device(device)

    def _free(self, path: str) -> Target:
        for pattern in self._patterns:
            match = pattern.matches(path)
            if match is not None:
                rule = pattern.settings
                return Target(_device(match[1]), path, rule.lane, rule.type, rule.content_type)
        raise Refusal(Code.NOT_FOUND, "bad-path", f"nothing is declared for path {shown(path)}")


def _device(name: str) -> str:
    try:
        return device_identifier(name, "device")
    except Poison as error:
        raise Refusal(Code.BAD_REQUEST, error.reason, str(error)) from None


def _identifier(text: str, what: str) -> str:
    try:
        return check_identifier(text, what)
    except Poison as error:
        raise Refusal(Code.BAD_REQUEST, error.reason, str(error)) from None
