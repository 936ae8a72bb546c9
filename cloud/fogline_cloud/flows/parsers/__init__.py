"""The parser plugins of the flow: their interface, the registry, and the choice of a parser for an event.

A parser is a callable that turns one `fogline.events.event.Event` into readings. It is registered as an entry point of group
`fogline.parsers`, in the `pyproject.toml` of its own distribution:

    [project.entry-points."fogline.parsers"]
    my-sensor = "my_package.my_sensor:parse"

and chosen by content type, or by a rule, in the settings file:

    [flow.parsers]
    "application/vnd.my-sensor" = "my-sensor"

    [[flow.parser_rules]]
    parser = "my-sensor"
    subject = "plant/*/climate"

`fogline parser new my-sensor` writes such a distribution, and `fogline parser test my-sensor --events FILE` runs it.

The module itself:

    from collections.abc import Iterator

    from fogline.errors import Poison
    from fogline.events.event import Event
    from fogline_cloud.flows.parsers import Reading, Skip

    def parse(event: Event) -> Iterator[Reading]:
        if event.data == b"starting":
            raise Skip("no-values", "the sensor has no values before its first minute")
        if len(event.data) != 2:
            raise Poison("malformed", f"a body of {len(event.data)} bytes; expected 2")
        yield Reading("temperature", int.from_bytes(event.data, "big") / 100, unit="Cel")

A parser reports problems by raising. Each event gets one row in table `events` with the outcome:

| the parser | outcome | effect |
|---|---|---|
| returns or yields `Reading` values | `ok` | the readings are rows of table `readings`; there may be none |
| returns or yields `Leftover` values beside them | `ok` | `detail` names what was not understood; the row keeps its body |
| returns or yields `Leftover` values alone | `dead` | reason `not-understood` |
| raises `Skip` | `skip` | the event has no readings for a known reason |
| raises `Retry` | `slow` | the parser is called again at once, three times in all, before the event is slow |
| raises `fogline.errors.Poison` | `dead` | the body can never be parsed |
| raises anything else | `dead` | reason `parser-error`; `detail` has the end of the traceback |
| takes more CPU time than `[flow] parse_limit_ms`, or 20 times that by the clock | `slow` | reason `timeout` |
| takes more memory than `[flow] parse_memory_mib` | `dead` | reason `memory` |
| ends its process (a crash in native code, `os._exit`) | `dead` | reason `killed` |
| returns a reading that is not valid (`Reading`) | as a `Leftover` | `detail` names the reading, and what is wrong with it |
| returns more than `[flow] max_readings` readings | as a `Leftover` | the first ones are kept; `detail` says that more follow |
| returns readings with very many characters in all (`MAX_CHARS`) | as a `Leftover` | the same |

Skipped, slow and dead events are kept with their body, and copied to the dead or slow topic. Readings yielded before an
exception are discarded.

Rules for parsers:

- A parser runs in the main thread of a Spark worker, for one event at a time. Workers are processes, and several run at once.
- The time limit is a signal that raises a `BaseException` inside the parser. A parser must not install a handler for SIGALRM
  and must not use `setitimer`.
- The result should depend on the event only: a worker may end at any time, and another one then parses the event again.
- A parser that ended its process runs in a child process from then on, and so does one with the attribute `isolated = True`
  (`parse.isolated = True` below a function). A child costs some time, and a crash in it costs one event only.
- An event with a body of more than 262,144 bytes has no `data`: `event.body()` reads the body. Only a parser with the attribute
  `large_bodies = True` (`parse.large_bodies = True` below a function) gets such events; else the outcome is `skip`, reason
  `large-body`.
- A parser must not use SIGPROF, `faulthandler.dump_traceback_later` or `setrlimit`.
- A parser must be installed on the driver's machine. On a cluster, `fogline flow archive` brings it to the executors.

`ble`: parsers for Bluetooth LE
`cbor_values`: every value of a CBOR item
`csv_values`: comma-separated values
`json_leaves`: values of a JSON document one by one
`json_values`: every value of a JSON document
`raw_number`: a body that is one decimal number
`senml`: SenML in JSON
`senml_cbor`: SenML in CBOR
`strict_cbor`: bounded CBOR decoder without lossy cases
`strict_json`: bounded JSON decoder without lossy cases
`tasmota`: telemetry and responses of Tasmota devices
`zigbee2mqtt`: states of Zigbee devices
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from importlib.metadata import entry_points
from types import MappingProxyType

import msgspec

from fogline import advertisement
from fogline.documents.json_payload import is_json_type
from fogline.errors import Misconfigured
from fogline.events.event import Event
from fogline.short_cache import cache_short

GROUP = "fogline.parsers"
"""The entry points' group."""
MAX_READINGS = 1000
"""Default of `[flow] max_readings`, the largest number of readings of one event."""
MAX_CHARS = 65_536
CHARS_PER_BYTE = 16
"""The metrics, texts and units of one event have at most `MAX_CHARS` characters, and this many for each byte of its body.

The path of a value may be much longer than the value: without a bound, 3 kB of JSON are a megabyte of names."""
MAX_METRIC_CHARS = 1024
MAX_UNIT_CHARS = 64
MAX_TEXT_CHARS = 65_536


class Reading(msgspec.Struct, frozen=True, gc=False):
    """One measured value: a number or a text. The flow checks every field: a reading with a wrong one is a `Leftover`."""

    metric: str
    """Name of the measured quantity, 1 to `MAX_METRIC_CHARS` characters. Names may repeat within an event."""
    value: float | None = None
    """The number, finite. A boolean is 0 or 1. `None` for a text."""
    text: str | None = None
    """The text, up to `MAX_TEXT_CHARS` characters. Beside a `value`: its digits, if a double cannot hold them exactly."""
    unit: str | None = None
    """The unit, up to `MAX_UNIT_CHARS` characters. Our parsers use the symbols of SenML (RFC 8428, RFC 8798)."""
    time_ns: int | None = None
    """Time of this reading in nanoseconds since 1970, within the years 1 to 9999. `None`: the event's time."""


class Leftover(msgspec.Struct, frozen=True):
    """A part of the body that the parser did not understand. Column `detail` names it beside the readings of the rest."""

    part: str
    """Name of the part, for example the path in a document or the number of a row."""
    why: str
    """What is wrong with it, in a few words."""


class Skip(Exception):
    """Raised by a parser if the event has no readings for a known reason.

    `reason`: a short, stable word for column `reason`. `detail`: a sentence for people, which may differ between events.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(detail or reason)
        self.reason = reason


class Retry(Exception):
    """Raised by a parser if another try may succeed, for example after a failed lookup. After three tries the event is slow."""


_DEFAULTS = {
    "application/json": "json",
    "application/senml+json": "senml",
    "application/sensml+json": "senml",
    "application/cbor": "cbor",
    "application/senml+cbor": "senml-cbor",
    "application/sensml+cbor": "senml-cbor",
    "text/csv": "csv",
    "text/plain": "raw-number",
    "application/octet-stream": "raw-number",
    advertisement.CONTENT_TYPE: "ble-advertisement",
    advertisement.GATT_CONTENT_TYPE: "ble-gatt",
}

Parser = Callable[[Event], Iterable[Reading | Leftover]]
"""Parses one event; may be a generator. Raises `Skip`, `Retry` or `fogline.errors.Poison`."""


@cache_short(maxsize=1024)
def essence(content_type: str) -> str:
    """Return a media type without its parameters, in lower case (RFC 9110, section 8.3.1)."""
    return content_type.partition(";")[0].strip().lower()


def parser_name(
    content_type: str, overrides: Mapping[str, str], deployed: Mapping[str, str] = MappingProxyType({})
) -> str | None:
    """Return the name of the parser for a content type, `None` if there is none.

    `overrides` (`checked_overrides`) come first, then the default choice, then `deployed` parsers, then the suffixes `+json`
    and `+cbor`.
    """
    kind = essence(content_type)
    by_suffix = "json" if is_json_type(kind) else "cbor" if kind.endswith("+cbor") else None
    return overrides.get(kind) or _DEFAULTS.get(kind) or deployed.get(kind) or by_suffix


def wants_isolation(parser: Parser) -> bool:
    """Return True if the parser asks for a child process, by an attribute `isolated` of the callable."""
    return bool(getattr(parser, "isolated", False))


def takes_large_bodies(parser: Parser) -> bool:
    """Return True if the parser asks for events with a large body, by an attribute `large_bodies` of the callable."""
    return bool(getattr(parser, "large_bodies", False))


@cache
def installed() -> Mapping[str, Parser]:
    """Return every installed parser by name. Raises `Misconfigured` if one cannot be loaded."""
    found: dict[str, Parser] = {}
    for entry in entry_points(group=GROUP):
        try:
            found[entry.name] = entry.load()
        except Exception as error:  # a plugin's module may raise anything while it is imported
            raise Misconfigured(f"parser {entry.name} ({entry.value}) cannot be loaded: {error!r}") from error
    return found


def checked_overrides(overrides: Mapping[str, str], deployed: Collection[str] = ()) -> dict[str, str]:
    """Return `[flow.parsers]` with normalised content types. Raises `Misconfigured` if a parser is not there.

    `deployed`: names of parsers beside the installed ones.
    """
    there = {*installed(), *deployed}
    for content_type, name in (*overrides.items(), *_DEFAULTS.items()):
        if name not in there:
            known = ", ".join(sorted(there)) or "none"
            raise Misconfigured(f'[flow.parsers] "{content_type}" = "{name}": no such parser is installed (installed: {known})')
    return {essence(content_type): name for content_type, name in overrides.items()}
