"""The soak's command line."""

import argparse
import asyncio
import json
import logging
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from demo.ble_devices import missing
from demo.ble_payload import ble_fleet
from demo.certificates import DAYS
from demo.cli import end_on_signal
from demo.payload import fleet
from demo.workspace import choose_ports, take_folder
from fogline.errors import Misconfigured
from fogline.installed import find_jars, find_java
from fogline.process.console import command_line
from soak.flat import ProcessSample, over_time
from soak.lines import faulty_lines
from soak.reconnects import FaultPlans
from soak.run import Soak, SoakOptions
from soak.schedule import BRIDGES, GATEWAYS, schedule
from soak.verdict import SoakVerdict

DESCRIPTION = """\
Runs all of Fogline on this machine for a long time: Kafka, two bridges, two gateways, Spark, MQTT and CoAP devices.
Meanwhile a schedule applies every kind of fault. Gateways, bridges, Kafka and Spark are killed, frozen, killed at crash
points, and restarted. Gateways move to other machines, restored from a backup or with an empty card. Lines are reset,
closed, half-open or slow; datagrams are lost, duplicated and reordered. The same seed gives the same schedule. At the end
the soak compares the sets of event ids that devices had acknowledged, that Kafka holds (read_committed) and that the table
holds, and verifies the ledger. For every command it compares the operator's verdict, the record and the device's own log.
It also samples the memory, descriptors, threads and tasks of every process. Data is in .fogline/soak, logs in
.fogline/soak/logs."""

EXAMPLE = """\
examples:
  make soak ARGS="--minutes 60"                            an hour, printing its seed
  make soak ARGS="--minutes 30 --seed 7 --json out.json"
  make soak ARGS="--minutes 30 --seed 7 --dry-run"         only the schedule
  make soak ARGS="--minutes 15 --certificate-minutes 5"    gateways' certificates that end every five minutes
  make soak ARGS="--reconnects 1000"                       1000 reconnects, without a restart of any process
  make soak ARGS="--ble 500"                               the same for Bluetooth devices: their links end 500 times

exit status: 0 no event is lost, duplicated or missing without a gap record, and with --reconnects or --ble no process
grew; 1 otherwise; 2 something must be changed first: one line says what
"""

ROWS = 12
"""Samples of the processes that are shown; the JSON has all of them."""
DEVICES = 40
RATE = 600.0
WANTED_RATE = 500.0
COMMAND_RATE = 6.6
"""10,000 commands in half an hour, if the operator waits for a bridge in a seventh of the time."""
RECONNECT_RATE = 100.0
BLE_RATE = 50.0
VALVES = 3
"""Bluetooth devices with connections, of each gateway."""


def build_parser() -> argparse.ArgumentParser:
    """The options."""
    parser = argparse.ArgumentParser(
        prog="soak", description=DESCRIPTION, epilog=EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--minutes", type=_over_0, default=10.0, metavar="M", help="how long devices send (default: 10)")
    text = "instead of the schedule: cut the connections between gateways and bridges N times"
    how.add_argument("--reconnects", type=int, default=0, metavar="N", help=text)
    text = "instead of the schedule: end the links of Bluetooth devices N times, by disconnect or by silence"
    how.add_argument("--ble", type=int, default=0, metavar="N", help=text)
    parser.add_argument("--seed", type=int, default=1, help="seed of all random choices (default: 1)")
    text = f"events/s of all devices (default: {RATE:.0f}, with --reconnects {RECONNECT_RATE:.0f}, with --ble {BLE_RATE:.0f})"
    parser.add_argument("--rate", type=_over_0, metavar="R", help=text)
    text = f"commands/s of the operator (default: {COMMAND_RATE}; none with --reconnects and --ble)"
    parser.add_argument("--commands", type=_over_0, default=COMMAND_RATE, metavar="R", help=text)
    parser.add_argument("--devices", type=int, default=DEVICES, help=f"how many devices (default: {DEVICES})")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results to this file")
    text = "validity of the gateways' certificates, which they renew by themselves; the bridges' are replaced once"
    parser.add_argument("--certificate-minutes", type=_over_0, default=0.0, metavar="M", help=text)
    parser.add_argument("--no-faults", action="store_true", help="without the schedule: only load")
    parser.add_argument("--dry-run", action="store_true", help="print the schedule, and do nothing")
    parser.set_defaults(run=run)
    return parser


def _over_0(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError("expected a number over 0")
    return value


def run(arguments: argparse.Namespace) -> int:
    """Run the soak."""
    for option, count in (("--reconnects", arguments.reconnects), ("--ble", arguments.ble)):
        if count < 0:
            raise Misconfigured(f"{option} must be over 0")
    if arguments.ble and (what := missing()):
        raise Misconfigured(f"--ble needs the simulated Bluetooth: {what}")
    if arguments.certificate_minutes and (arguments.reconnects or arguments.ble):
        raise Misconfigured("--certificate-minutes needs a time: use it with --minutes")
    if arguments.devices < 2 * len(GATEWAYS):
        raise Misconfigured(f"--devices must be at least {2 * len(GATEWAYS)}")
    if arguments.json is not None and not arguments.json.absolute().parent.is_dir():
        raise Misconfigured(f"--json {arguments.json}: there is no such folder")
    counted = arguments.reconnects or arguments.ble
    faults = [] if counted or arguments.no_faults else schedule(arguments.seed, arguments.minutes * 60)
    print(f"seed {arguments.seed}")
    for fault in faults:
        print(fault.text)
    if arguments.dry_run:
        return 0
    find_java()
    for jars in ("kafka", "spark"):
        find_jars(jars)
    rate = arguments.rate or (RECONNECT_RATE if arguments.reconnects else BLE_RATE if arguments.ble else RATE)
    options = SoakOptions(
        faults=faults,
        reconnects=arguments.reconnects,
        ble=arguments.ble,
        seed=arguments.seed,
        seconds=arguments.minutes * 60,
        rate=rate,
        wanted_rate=0.0 if counted else min(WANTED_RATE, 0.8 * rate),
        certificate_minutes=arguments.certificate_minutes,
        command_rate=0.0 if counted else arguments.commands,
    )
    return asyncio.run(_soak(arguments, options, Console(stderr=True)))


async def _soak(arguments: argparse.Namespace, options: SoakOptions, console: Console) -> int:
    devices = fleet(arguments.devices, len(GATEWAYS))
    serving = sum(each.serves for each in devices)
    free = choose_ports(kafka=0, amqp=0, mqtt=0, coap=0, gateways=len(GATEWAYS), serving=serving, bridges=len(BRIDGES))
    plans = FaultPlans(arguments.seed)
    plans.stopped = not options.reconnects
    async with faulty_lines(free, plans) as (lines, ports):
        retry_s = (0.2, 0.5) if options.reconnects or options.ble else None
        bluetooth = ble_fleet(len(GATEWAYS), VALVES) if options.ble else []
        days = options.certificate_minutes / (24 * 60) or DAYS
        workspace = take_folder(ports, devices, ble=bluetooth, name="soak", retry_s=retry_s, certificate_days=days)
        log = workspace.logs / "soak.log"
        logging.basicConfig(force=True, level=logging.INFO, filename=log, format="%(asctime)s %(message)s")
        soak = Soak(workspace, lines, options, console, plans=plans, fleet=devices)
        end_on_signal(soak.stop, soak.kill_all, console)
        verdict = await soak.run()
    if verdict is None:
        return 0
    if arguments.json is not None:
        held = {
            "samples": [asdict(each) for each in soak.sampler.samples],
            "flow": [asdict(each) for each in soak.sampler.flow],
        }
        found = {"seed": arguments.seed, **verdict.as_json(), "faults": soak.done, **held}
        arguments.json.write_text(json.dumps(found, indent=2) + "\n", "utf-8")
    show(verdict, soak.sampler.samples, Console(width=max(Console().width, 120)))
    return 0 if verdict.holds else 1


def show(verdict: SoakVerdict, samples: Sequence[ProcessSample], console: Console) -> None:
    """Print counts, ledger, samples of the processes, problems and verdict."""
    found = verdict.judgement
    table = Table("", "", box=None, show_header=False)
    rows: list[tuple[str, object]] = [
        *found.counts,
        ("unexplained gaps", verdict.gaps),
        ("retransmissions discarded by the gateways", verdict.refused["edge"]),
        ("retransmissions discarded by the bridges", verdict.refused["bridge"]),
        *((f"kills of {part}", verdict.kills[part]) for part in verdict.planned),
        *((f"connections ended by {how}", count) for how, count in sorted(verdict.reconnects.items())),
        ("events/s offered, on average", round(verdict.load.rate)),
        *(verdict.commands.rows if verdict.commands else ()),
        *(verdict.certificates.rows if verdict.certificates else ()),
    ]
    for name, value in rows:
        table.add_row(name, f"{value:,}")
    console.print(table)
    if verdict.ledger is not None:
        console.print(_ledger(verdict.ledger["streams"]))
    console.print(_over_time(samples))
    console.print(_held(verdict))
    for problem in verdict.all_problems:
        console.print(f"problem: {problem}", style="red", highlight=False)
    console.print(verdict.sentence, style="bold green" if verdict.holds else "bold red", highlight=False)


def _ledger(streams: Iterable[Mapping[str, Any]]) -> Table:
    columns = ("acknowledged", "kafka", "table", "pending")
    table = Table("ledger", "lane", "stream", *columns, "gaps", "refused: edge", "bridge", box=None)
    for column in table.columns[3:]:
        column.justify = "right"
    for each in streams:
        gaps = sum(last - first + 1 for first, last in each["gaps"])
        counts = (*(each[name] for name in columns), gaps, *(each["refused"][side] for side in ("edge", "bridge")))
        shown = ("-" if count is None else f"{count:,}" for count in counts)
        table.add_row(each["gateway"], each["lane"], each["stream"], *shown)
    return table


def _over_time(samples: Sequence[ProcessSample]) -> Table:
    """Return a row a moment: MB, descriptors, threads and tasks of each part."""
    parts = sorted({each.part for each in samples if each.part.startswith(("gateway", "bridge"))})
    table = Table("MB / descriptors / threads / tasks", *parts, box=None)
    by_time = {part: {each.at_s: each for each in samples if each.part == part} for part in parts}
    for moment in over_time(samples, "devices", ROWS):
        found = [by_time[part].get(moment.at_s) for part in parts]
        table.add_row(f"{moment.at_s / 60:.1f} min", *("down" if each is None else _shown(each) for each in found))
    return table


def _shown(each: ProcessSample) -> str:
    return f"{each.rss_mb:.0f} / {each.descriptors} / {each.threads} / {'-' if each.tasks is None else each.tasks}"


def _held(verdict: SoakVerdict) -> Table:
    table = Table("process", "lives", "MB warm", "lowest", "highest", "last", "descriptors", "threads", "tasks", box=None)
    for column in table.columns[1:]:
        column.justify, column.no_wrap = "right", True
    for each in verdict.held:
        counts = (f"{first:.0f} > {last:.0f}" for first, last in each.counts.values())
        table.add_row(each.part, str(each.lives), *(f"{value:.0f}" for value in each.rss_mb), *counts)
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the soak."""
    return command_line.main(build_parser(), arguments)


if __name__ == "__main__":
    sys.exit(main())
