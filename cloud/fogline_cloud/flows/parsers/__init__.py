"""What a parser is, and which one an event goes to.

A parser turns one event into readings. It is a plugin: an entry point of the group `fogline.parsers`, called by its
name in the settings:

    [project.entry-points."fogline.parsers"]
    my-sensor = "my_package.my_sensor:parse"

It says what is wrong by raising: `Skip` (known to be nothing for this parser), `Retry` (ask again, at once), `Poison`
(this body can never be parsed). Whatever else it raises makes a dead letter with the end of the traceback.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.metadata import entry_points

import msgspec

from fogline import advertisement
from fogline.errors import Misconfigured
from fogline.event import Event
from fogline.json_payload import is_json_type
from fogline.short_cache import cache_short

GROUP = "fogline.parsers"
MAX_READINGS = 1000
"""The most readings of one event."""
MAX_METRIC_CHARS = 1024
MAX_UNIT_CHARS = 64
MAX_TEXT_CHARS = 65_536


class Reading(msgspec.Struct, frozen=True):
    """One canonical value: a number (`value`, finite) or a `text`.

    Both only where a double cannot hold the number: then `text` has its digits. `time_ns`: nanoseconds since 1970 of
    this reading, `None` for the event's time.
    """

    metric: str
    value: float | None = None
    text: str | None = None
    unit: str | None = None
    time_ns: int | None = None


class Skip(Exception):
    """This event is known to be nothing for this parser. `reason` is a short, stable word."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(detail or reason)
        self.reason = reason


class Retry(Exception):
    """Ask again: it is tried a few times at once, then the event is `slow`."""


_DEFAULTS = {
    "application/json": "json",
    "application/senml+json": "senml",
    "application/cbor": "cbor",
    "application/senml+cbor": "senml-cbor",
    "text/plain": "raw-number",
    "application/octet-stream": "raw-number",
    advertisement.CONTENT_TYPE: "ble-advertisement",
    advertisement.GATT_CONTENT_TYPE: "ble-gatt",
}

Parser = Callable[[Event], Iterable[Reading]]
"""Reads one event; may be a generator. Raises `Skip`, `Retry` or `fogline.errors.Poison`."""


@cache_short(maxsize=1024)
def essence(content_type: str) -> str:
    """A media type without its parameters, in lower case (RFC 9110, section 8.3.1)."""
    return content_type.partition(";")[0].strip().lower()


def parser_name(content_type: str, overrides: Mapping[str, str]) -> str | None:
    """The parser that an event of this content type goes to, `None` if there is none. `overrides` come first."""
    kind = essence(content_type)
    by_suffix = "json" if is_json_type(kind) else "cbor" if kind.endswith("+cbor") else None
    return overrides.get(kind) or _DEFAULTS.get(kind) or by_suffix


@cache
def installed() -> Mapping[str, Parser]:
    """Every installed parser by its name. Raises `Misconfigured` if one cannot be loaded."""
    found: dict[str, Parser] = {}
    for entry in entry_points(group=GROUP):
        try:
            found[entry.name] = entry.load()
        except Exception as error:  # a plugin's module may raise anything as it is imported
            raise Misconfigured(f"parser {entry.name} ({entry.value}) cannot be loaded: {error!r}") from error
    return found


def checked_overrides(overrides: Mapping[str, str]) -> dict[str, str]:
    """`[flow.parsers]` with its content types normalised. Raises `Misconfigured` if a parser is not installed."""
    for content_type, name in (*overrides.items(), *_DEFAULTS.items()):
        if name not in installed():
            known = ", ".join(sorted(installed())) or "none"
            raise Misconfigured(f'[flow.parsers] "{content_type}" = "{name}": no such parser is installed (there are: {known})')
    return {essence(content_type): name for content_type, name in overrides.items()}
