"""The demo's command line."""

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from demo.ble_devices import missing
from demo.ble_judgement import BleJudgement
from demo.ble_payload import ble_fleet
from demo.hall import run_hall
from demo.judgement import CommandJudgement
from demo.payload import fleet
from demo.report import DemoReport
from demo.run import Demonstration, DemoOptions
from demo.serve import make_site, serve
from demo.workspace import ROOT, Workspace, choose_ports, take_folder
from fogline.errors import Misconfigured
from fogline.installed import find_jars, find_java
from fogline.process.console import command_line

DESCRIPTION = """\
Runs all of Fogline on this machine: Kafka, a bridge, two gateways, Spark, simulated MQTT, CoAP and Bluetooth devices, and
an operator that sends commands. Every few seconds the demo kills one part (SIGKILL) under load. Meanwhile one gateway
renews its certificate, and one more gateway is revoked and shut out. At the end the demo compares the sets of event ids
that gateways had acknowledged, that Kafka holds and that the table holds. For every command it compares the operator's
result, the record in Kafka and the effect at the device. Data is in .fogline/demo, logs in .fogline/demo/logs."""

EXAMPLE = """\
examples:
  python deploy/demo                                  runs until Ctrl-C, then prints the result
  python deploy/demo --events 30000 --json out.json   stops by itself
  python deploy/demo --plain --minutes 60             runs for an hour
  python deploy/demo --rules                          a hall that switches its fan offline, and sends means
  python deploy/demo --stay                           starts everything on the usual ports, to try by hand

exit status: 0 no event is lost or duplicated; 1 otherwise; 2 something must be changed first: one line says what
"""

STAY_PORTS = {"kafka": 9092, "amqp": 5672, "mqtt": 1883, "coap": 5683, "http": 8080, "devices_http": 8081}
GATEWAYS = 2
COMMANDS = 300


def build_parser() -> argparse.ArgumentParser:
    """The options."""
    parser = argparse.ArgumentParser(
        prog="demo", description=DESCRIPTION, epilog=EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=_count, default=0, help="stop after this many acknowledged events (default: Ctrl-C)")
    text = f"and this many commands, four a second (default: {COMMANDS} with --events)"
    parser.add_argument("--commands", type=_count, default=0, metavar="N", help=text)
    parser.add_argument("--minutes", type=float, default=0.0, metavar="M", help="run for at least this long")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result to this file")
    parser.add_argument("--devices", type=_count, default=40, help="number of devices (default: 40)")
    parser.add_argument("--rate", type=float, default=200.0, help="events/s of all devices (default: 200)")
    parser.add_argument("--kill-every", type=float, default=15.0, metavar="S", help="seconds between kills (default: 15)")
    parser.add_argument("--no-kills", action="store_true", help="kill nothing")
    parser.add_argument("--insecure-dev", action="store_true", help="without TLS between gateways, bridge and operator")
    parser.add_argument("--plain", action="store_true", help="print lines instead of the live screen")
    parser.add_argument("--rules", action="store_true", help="a hall instead: rules switch a fan offline, and means are sent")
    parser.add_argument("--stay", action="store_true", help="no devices and no kills: stay up until Ctrl-C")
    parser.add_argument("--keep", action="store_true", help="with --stay: keep the data of the last run")
    for name, what in (
        ("mqtt", "the first gateway's MQTT"),
        ("coap", "the first gateway's CoAP"),
        ("amqp", "the bridge's AMQP"),
        ("kafka", "Kafka's"),
        ("http", "the HTTP API's"),
        ("devices_http", "the first gateway's HTTP"),
    ):
        usual = STAY_PORTS[name]
        text = f"{what} port (default: a free one; with --stay {usual})"
        parser.add_argument(f"--{name.replace('_', '-')}-port", type=_port, default=0, metavar="PORT", help=text)
    parser.set_defaults(run=run)
    return parser


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("expected a number from 1")
    return value


def _port(text: str) -> int:
    value = int(text)
    if not 1 <= value <= 65535:
        raise argparse.ArgumentTypeError("expected a port from 1 to 65535")
    return value


def run(arguments: argparse.Namespace) -> int:
    """Run the demo, or only its parts with --stay."""
    if arguments.keep and not arguments.stay:
        raise Misconfigured("--keep needs --stay: the demo's devices count from 1, so it begins empty")
    if min(arguments.rate, arguments.kill_every) <= 0 or arguments.minutes < 0:
        raise Misconfigured("--rate and --kill-every must be over 0, --minutes not below 0")
    wanted = {
        name: getattr(arguments, f"{name}_port") or (usual if arguments.stay else 0) for name, usual in STAY_PORTS.items()
    }
    if arguments.json is not None and not arguments.json.absolute().parent.is_dir():
        raise Misconfigured(f"--json {arguments.json}: there is no such folder")
    find_java()
    if arguments.rules:
        find_jars("kafka")
        return asyncio.run(run_hall(ROOT / ".fogline" / "demo-rules", Console(), arguments.json))
    for jars in ("kafka", "spark"):
        find_jars(jars)
    devices = [] if arguments.stay else fleet(arguments.devices, GATEWAYS)
    serving = sum(each.serves for each in devices)
    ports = choose_ports(**wanted, gateways=1 if arguments.stay else GATEWAYS, serving=serving)
    without = None if arguments.stay else missing()
    bluetooth = [] if arguments.stay or without else ble_fleet(GATEWAYS)
    if without:
        print(f"{without}; the demo runs without Bluetooth", file=sys.stderr)
    secure = not (arguments.stay or arguments.insecure_dev)
    stolen = f"gateway-{GATEWAYS + 1}" if secure else ""
    workspace = take_folder(ports, devices, ble=bluetooth, keep=arguments.keep, secure=secure, stolen=stolen)
    logging.basicConfig(force=True, level=logging.INFO, filename=workspace.logs / "demo.log", format="%(asctime)s %(message)s")
    console = Console(stderr=True)
    return asyncio.run(_stay(workspace, console) if arguments.stay else _demonstrate(workspace, arguments, console))


async def _stay(workspace: Workspace, console: Console) -> int:
    stop = asyncio.Event()
    site = make_site(workspace, console, stop)
    end_on_signal(stop, site.kill_all, console)
    return await serve(workspace, console, site, stop)


async def _demonstrate(workspace: Workspace, arguments: argparse.Namespace, console: Console) -> int:
    options = DemoOptions(
        events=arguments.events,
        commands=arguments.commands or (COMMANDS if arguments.events else 0),
        seconds=arguments.minutes * 60,
        devices=arguments.devices,
        rate=arguments.rate,
        kill_every_s=0.0 if arguments.no_kills else arguments.kill_every,
        plain=arguments.plain or not console.is_terminal,
    )
    demonstration = Demonstration(workspace, options, console)
    end_on_signal(demonstration.stop, demonstration.kill_all, console)
    report = await demonstration.run()
    if report is None:
        return 0
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(report.as_json(), indent=2) + "\n", "utf-8")
    show_report(report, Console())
    return report.status


def end_on_signal(stop: asyncio.Event, kill_all: Callable[[], None], console: Console) -> None:
    """Set `stop` at the first Ctrl-C; at the second, kill all and exit."""

    def interrupted() -> None:
        if stop.is_set():
            kill_all()
            os._exit(130)
        stop.set()
        console.print("stopping in order; press Ctrl-C again to kill everything at once")

    for each in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(each, interrupted)


def show_report(report: DemoReport, console: Console) -> None:
    """Print the report."""
    found = report.judgement
    table = Table("", "", box=None, show_header=False)
    rows: list[tuple[str, object]] = [
        *found.counts,
        ("retransmissions discarded by the gateways", report.refused["edge"]),
        ("retransmissions discarded by the bridge", report.refused["bridge"]),
        *((f"kills of {part}", count) for part, count in report.kills.items()),
        *_about_page(report),
        ("events/s while parts were killed", f"{report.details['rate']['average']:.0f}"),
        *_about(report.commands),
        *_about_ble(report.ble),
        *(report.certificates.rows if report.certificates else ()),
    ]
    for name, value in rows:
        table.add_row(name, f"{value:,}" if isinstance(value, int) else str(value))
    console.print(table)
    for sentence in report.freshness.sentences if report.freshness else ():
        console.print(sentence, highlight=False, soft_wrap=True)
    for problem in report.all_problems:
        console.print(f"problem: {problem}", style="red", highlight=False, soft_wrap=True)
    console.print(found.sentence, style="bold green" if report.status == 0 else "bold red", highlight=False, soft_wrap=True)


def _about_page(report: DemoReport) -> list[tuple[str, object]]:
    shown = [each["page_s"] for each in report.details["each_kill"] if each["page_s"] is not None]
    return [("kills shown on the operator's page", f"{len(shown)}, after at most {max(shown):.1f} s")] if shown else []


def _about(commands: CommandJudgement | None) -> list[tuple[str, object]]:
    if commands is None:
        return []
    ends = ", ".join(f"{count:,} {state}" for state, count in commands.by_state.items())
    took = "" if commands.p50_ms is None else f"{commands.p50_ms:.0f} / {commands.p99_ms:.0f} ms"
    return [("commands", f"{commands.sent:,}: {ends}"), ("time to a command's answer (p50 / p99)", took)]


def _about_ble(found: BleJudgement | None) -> list[tuple[str, object]]:
    if found is None:
        return []
    wrong = f"lost {len(found.lost)}, duplicate {len(found.duplicate)}, never advertised {len(found.phantom)}"
    ends = ", ".join(f"{count:,} {state}" for state, count in found.commands.by_state.items())
    return [
        ("Bluetooth values advertised", f"{found.on_air:,}, {found.share:.1%} received"),
        ("Bluetooth values in Kafka", f"{found.kafka:,}, {found.copies:,} from both gateways"),
        ("Bluetooth values in the table", f"{found.table:,}: {wrong}"),
        ("commands to Bluetooth devices", f"{found.commands.sent:,}: {ends}"),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo."""
    return command_line.main(build_parser(), arguments)


if __name__ == "__main__":
    sys.exit(main())
