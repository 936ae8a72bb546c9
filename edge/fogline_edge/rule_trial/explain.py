"""`fogline-edge explain`: what the rules of the settings do with an event, step by step. It stores and sends nothing."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from fogline.address import addressed_device
from fogline.documents.media_type import check_media_type, event_type
from fogline.errors import Misconfigured, Poison
from fogline.events.event import Arrival, Lane, parse_rfc3339
from fogline.events.large_body import MAX_INLINE_BYTES, size_of
from fogline.installed import settings_folder
from fogline.process.console.terminal import show
from fogline_edge.operate.first_settings import FILE
from fogline_edge.operate.settings_check import check
from fogline_edge.operate.status import find_event
from fogline_edge.rule_trial.trial import arrival_of
from fogline_edge.rules.event_rules import is_large, rules_of
from fogline_edge.rules.explanation import RuleStep
from fogline_edge.settings import load

EXAMPLE = """\
examples:
  echo '{"serial": "p-7", "n": 4}' | fogline-edge explain --device press-7 --channel plant/7/state
  fogline-edge explain reading.cbor --device press-7 --channel plant/7/state --content-type application/cbor
  fogline-edge explain --event JSUSTDHM7HV32KNFPLUTKVG6OI      an event that waits in the outbox, by its id
"""
_ADAPTERS = ("ble", "coap", "http", "mqtt", "mqtt-client")


def add_explain(commands: Any) -> None:
    """Add the command."""
    about = "show what the rules of the settings do with an event, step by step; nothing is stored"
    raw = argparse.RawDescriptionHelpFormatter
    explain = commands.add_parser("explain", help=about, epilog=EXAMPLE, formatter_class=raw)
    explain.add_argument("file", nargs="?", default="-", help="file with the payload; - (the default): the standard input")
    which = "the settings file (default: edge.toml, here or in /etc/fogline)"
    explain.add_argument("--config", type=Path, default=settings_folder(FILE) / FILE, help=which)
    explain.add_argument("--event", metavar="ID", help="an event of the outbox, instead of a payload")
    explain.add_argument("--device", help="the device")
    explain.add_argument("--channel", help="MQTT topic, CoAP or HTTP path, or characteristic")
    explain.add_argument("--content-type", metavar="TYPE", help="default: JSON if the payload begins with { or [")
    explain.add_argument("--type", default="telemetry", help="CloudEvents type (default: telemetry)")
    explain.add_argument("--lane", choices=[each.value for each in Lane], default="telemetry", help="default: telemetry")
    explain.add_argument("--adapter", choices=_ADAPTERS, default="mqtt", help="protocol of the device (default: mqtt)")
    explain.add_argument("--time", help="time that the device gives, as RFC 3339 (default: none)")
    explain.add_argument("--json", action="store_true", help="print JSON")
    explain.set_defaults(run=run_explain)


def run_explain(arguments: argparse.Namespace) -> int:
    """Print the steps."""
    settings = load(arguments.config)
    check(settings, arguments.config)
    arrival = _arrival(arguments) if arguments.event is None else arrival_of(find_event(Path(settings.data), arguments.event))
    rules = rules_of(settings.rules)
    steps = [] if rules is None else list(rules.explain(arrival))
    size = len(arrival.data) or size_of(arrival.dataref or "")
    if arguments.json:
        event = {"device": arrival.device, "channel": arrival.channel, "content_type": arrival.content_type}
        show(json.dumps({**event, "bytes": size, "steps": [each._asdict() for each in steps]}))
        return 0
    show(f"device {arrival.device}, channel {arrival.channel}: {arrival.content_type}, {size:,} bytes")
    for line in _lines(steps, large=is_large(arrival)):
        show(line)
    return 0


def _lines(steps: list[RuleStep], *, large: bool) -> list[str]:
    if not steps and large:
        return [f"no rule reads a body of more than {MAX_INLINE_BYTES:,} bytes: the event is stored as it comes"]
    if not steps:
        return ["no rule applies: the event is stored as it comes"]
    return [f"{number}. {each.kind}, rule {each.rule}: {each.effect}" for number, each in enumerate(steps, 1)]


def _arrival(arguments: argparse.Namespace) -> Arrival:
    """Return an arrival with the options' attributes. Raises `Misconfigured`."""
    if arguments.device is None or arguments.channel is None:
        raise Misconfigured("expected --device and --channel, or --event: examples are in fogline-edge explain --help")
    try:
        data = sys.stdin.buffer.read() if arguments.file == "-" else Path(arguments.file).read_bytes()
    except OSError as error:
        raise Misconfigured(f"the payload cannot be read: {error}") from None
    try:
        time_ns = None if arguments.time is None else parse_rfc3339(arguments.time)
    except (ValueError, OverflowError):
        raise Misconfigured(f"--time {arguments.time}: expected RFC 3339, such as 2026-11-28T12:00:00Z") from None
    try:
        check_media_type(arguments.content_type or "application/json")
        device = addressed_device(arguments.device, "--device")
    except Poison as error:
        raise Misconfigured(str(error)) from None
    return Arrival(
        device=device,
        channel=arguments.channel,
        lane=Lane(arguments.lane),
        content_type=event_type(arguments.content_type, None, data),
        data=data,
        adapter=arguments.adapter,
        type=arguments.type,
        time_ns=time_ns,
    )
