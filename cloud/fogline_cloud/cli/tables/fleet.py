"""`fogline fleet`: how much of the fleet is heard, who is silent or late, how large events are, how well they are parsed."""

import argparse
import json
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from fogline.errors import Misconfigured
from fogline.process.console.command_line import add_limit
from fogline.process.console.listing import show_rows
from fogline.process.console.terminal import show
from fogline.process.console.times import moment, seconds
from fogline_cloud.cli.common import add_command, add_group
from fogline_cloud.cli.operators.operator_link import add_bridge, devices_of
from fogline_cloud.devices.device_table import MAX_DEVICES
from fogline_cloud.fleet_settings import SilentSettings
from fogline_cloud.settings import CloudSettings, load

if TYPE_CHECKING:
    import pyarrow as pa

    from fogline_cloud.fleet.questions import Registry

EXAMPLE = """\
examples:
  fogline fleet coverage                        devices heard on each of the last 7 days, and in all of them
  fogline fleet coverage --by type --since 30d
  fogline fleet silent                          registered devices that are silent for too long, or were never heard
  fogline fleet silent --over 1h --by gateway
  fogline fleet late --by gateway --over 1h     events that came more than an hour after the gateway had them
  fogline fleet sizes --by type,firmware        sizes of bodies
  fogline fleet health --by parser,type         outcomes of parsing

Types come from the registry of devices, which the bridge is asked for.
"""
_DEVICE_FIELDS = ("type", "firmware", "gateway")
_EVENT_FIELDS = ("day", *_DEVICE_FIELDS, "lane", "adapter", "parser", "device")


def register(groups: "argparse._SubParsersAction[Any]") -> None:
    """Add the subcommands."""
    raw: dict[str, Any] = {"epilog": EXAMPLE, "formatter_class": argparse.RawDescriptionHelpFormatter}
    commands = add_group(groups, "fleet", "ask about all devices over time", description=__doc__, **raw)
    questions = (
        ("coverage", run_coverage, "devices that were heard, of those in the registry", ("day", *_DEVICE_FIELDS), "day"),
        ("silent", run_silent, "devices that are silent for too long, or were never heard", _DEVICE_FIELDS, None),
        ("late", run_late, "how late events came, and devices whose clocks are wrong", _EVENT_FIELDS, "gateway"),
        ("sizes", run_sizes, "sizes of events", _EVENT_FIELDS, "type"),
        ("health", run_health, "outcomes of events", _EVENT_FIELDS, "parser"),
    )
    for name, run, about, fields, usual in questions:
        command = add_command(commands, name, run, about, **raw)
        default = f"default: {usual}" if usual else "default: a line for each device"
        command.add_argument(
            "--by",
            type=_fields(fields),
            default=(usual,) if usual else (),
            metavar="FIELD,...",
            help=f"a line for each value of these: {', '.join(fields)} ({default})",
        )
        if name != "silent":
            days = "whole days since then, in UTC: 7d is today and the six days before; or a date (default: 7d)"
            command.add_argument("--since", default="7d", metavar="TIME", help=days)
        command.add_argument("--without-registry", action="store_true", help="ask no bridge: devices have no type")
        add_limit(command, 1000, "the first ones")
        add_bridge(command)
        if name == "silent":
            longer = "silent for longer than this, such as 1h (default: [[fleet.silent]] of the settings, or 1d)"
            command.add_argument("--over", metavar="TIME", help=longer)
        if name == "late":
            command.add_argument("--over", default="1m", metavar="TIME", help="count events with a longer delay (default: 1m)")


def run_coverage(arguments: argparse.Namespace) -> int:
    """Print the coverage."""
    from fogline_cloud.fleet import questions  # noqa: PLC0415 - a bridge needs no Arrow

    rows, registry = _read(arguments, "coverage")
    return _show(arguments, questions.coverage(rows, registry, arguments.by, datetime.now(UTC).date()))


def run_silent(arguments: argparse.Namespace) -> int:
    """Print the silent devices."""
    from fogline_cloud.devices.silence import SilenceRules  # noqa: PLC0415 - beside it
    from fogline_cloud.fleet import questions  # noqa: PLC0415 - a bridge needs no Arrow

    rules = load(arguments.config, kafka=False).fleet.silent
    if arguments.over is not None:
        rules = [SilentSettings(after_s=seconds("--over", arguments.over))]
    rows, registry = _read(arguments, "silent")
    found = questions.silent(rows, registry, SilenceRules(rules), datetime.now(UTC))
    if arguments.by:
        found = questions.silent_counts(rows, registry, found, arguments.by)
    return _show(arguments, found, "no device is silent for too long")


def run_late(arguments: argparse.Namespace) -> int:
    """Print the delays."""
    from fogline_cloud.fleet import questions  # noqa: PLC0415 - a bridge needs no Arrow
    from fogline_cloud.fleet.buckets import DELAYS_S  # noqa: PLC0415 - beside it

    over_s = seconds("--over", arguments.over)
    if over_s not in DELAYS_S:
        known = ", ".join(map(_time, DELAYS_S))
        raise Misconfigured(f"--over {arguments.over!r}: delays are counted in steps: give one of {known}")
    rows, registry = _read(arguments, "late")
    return _show(arguments, questions.late(rows, registry, arguments.by, int(over_s)))


def run_sizes(arguments: argparse.Namespace) -> int:
    """Print the sizes."""
    from fogline_cloud.fleet import questions  # noqa: PLC0415 - a bridge needs no Arrow

    rows, registry = _read(arguments, "sizes")
    return _show(arguments, questions.sizes(rows, registry, arguments.by))


def run_health(arguments: argparse.Namespace) -> int:
    """Print the outcomes."""
    from fogline_cloud.fleet import questions  # noqa: PLC0415 - a bridge needs no Arrow

    rows, registry = _read(arguments, "health")
    return _show(arguments, questions.health(rows, registry, arguments.by))


def _read(arguments: argparse.Namespace, question: str) -> "tuple[pa.Table, Registry]":
    """Return the rows of the tenant's devices, and the registry."""
    from fogline_cloud.fleet.fleet_table import fleet_of  # noqa: PLC0415 - a bridge needs no Arrow
    from fogline_cloud.fleet.questions import columns_of, of_devices  # noqa: PLC0415 - beside it

    settings, now = load(arguments.config, kafka=False), datetime.now(UTC)
    since = date.min if question == "silent" else _first_day(arguments.since, now)
    registry = {} if arguments.without_registry else _registry(arguments, settings)
    rows = fleet_of(settings, now.date()).current(columns_of(question, arguments.by), since)
    return of_devices(rows, settings.tenant), registry


def _registry(arguments: argparse.Namespace, settings: CloudSettings) -> "Registry":
    from fogline_cloud.fleet.questions import FleetDevice  # noqa: PLC0415 - a bridge needs no Arrow

    try:
        found = devices_of(arguments, settings, limit=MAX_DEVICES)
    except Misconfigured as error:
        raise Misconfigured(f"{error}. Or leave the registry out: --without-registry") from None
    return {
        each["device"]: FleetDevice(
            type=each["type"],
            firmware=each["firmware"],
            gateway=(each["gateways"] or [""])[0],
            registered_s=datetime.fromisoformat(each["changed"]).timestamp() if each["changed"] else None,
        )
        for each in found.records
    }


def _first_day(text: str, now: datetime) -> date:
    """Return the first whole day since a moment."""
    since = moment("--since", text, now)
    return (since + timedelta(days=1) - timedelta(microseconds=1)).date()


def _fields(known: Sequence[str]) -> Any:
    def read(text: str) -> tuple[str, ...]:
        fields = tuple(dict.fromkeys(text.split(",")))
        if unknown := [each for each in fields if each not in known]:
            raise argparse.ArgumentTypeError(f"there is no field {unknown[0]!r}: expected {', '.join(known)}")
        return fields

    return read


def _show(arguments: argparse.Namespace, answer: list[dict[str, Any]], empty: str = "no event of a device in this time") -> int:
    left = max(0, len(answer) - arguments.limit)
    answer = answer[: arguments.limit]
    if arguments.json:
        show(json.dumps(answer))
        return 0
    heads = [name.removesuffix("_s").replace("_", " ") for name in answer[0]] if answer else []
    show_rows(heads, [[_cell(name, value) for name, value in each.items()] for each in answer], empty, left)
    return 0


def _cell(name: str, value: Any) -> Any:
    if name == "share" and value is not None:
        return f"{value:.1%}"
    if name.endswith("_s") and value is not None:
        return _time(value)
    if name == "last" and value is None:
        return "never"
    return value


def _time(seconds_: float) -> str:
    """Return a length of time as people write it."""
    for unit, each in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds_ >= each:
            return f"{seconds_ / each:.3g}{unit}"
    return f"{seconds_:.3g}s"
