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
from demo.ble_payload import crowd
from demo.cli import end_on_signal
from demo.payload import fleet
from demo.place import ROOT, choose_ports, take_folder
from fogline import commandline
from fogline.errors import Misconfigured
from fogline.installed import find_jars, find_java
from soak.flat import Sample, over_time
from soak.lines import between
from soak.plot import OURS, draw, panels
from soak.reconnects import Fates
from soak.run import Options, Soak
from soak.schedule import BRIDGES, GATEWAYS, schedule
from soak.verdict import Verdict

DESCRIPTION = """\
The whole of Fogline on this machine for long: Kafka, two bridges, two gateways, Spark, MQTT and CoAP devices, and every
kind of fault at random: gateways, bridges, Kafka and Spark are killed, frozen, made to end at crash points, restarted in
turn; lines are reset, closed, half-open, slow; datagrams get lost, doubled, out of order. The same seed makes the same
schedule. In the end the sets of ids are compared: acknowledged by the devices, in Kafka (read_committed), in the table;
the ledger is verified; and a plot shows what every process held. Everything lies in .fogline/soak, logs in
.fogline/soak/logs."""

EXAMPLE = """\
examples:
  make soak ARGS="--minutes 60"                            an hour, printing its seed
  make soak ARGS="--minutes 30 --seed 7 --json out.json"
  make soak ARGS="--minutes 30 --seed 7 --dry-run"         only the schedule
  make soak ARGS="--reconnects 1000"                       a thousand reconnects in one life of the processes
  make soak ARGS="--ble 500"                               the same of Bluetooth devices: their links end 500 times

exit status: 0 nothing lost, nothing twice, nothing missing without a word, and with --reconnects or --ble nothing
piled up; 1 otherwise; 2 something has to be changed first, one line says what
"""

ROWS = 12
"""So many moments are shown of what processes held; all of them are in the JSON and in the plot."""
DEVICES = 40
RATE = 600.0
WANTED_RATE = 500.0
RECONNECT_RATE = 100.0
BLE_RATE = 50.0
VALVES = 3
"""Bluetooth devices that are connected to, of each gateway."""


def build_parser() -> argparse.ArgumentParser:
    """The options."""
    parser = argparse.ArgumentParser(
        prog="soak", description=DESCRIPTION, epilog=EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--minutes", type=_over_0, default=10.0, metavar="M", help="how long devices send (default: 10)")
    text = "instead of the schedule: cut the connections between gateways and bridges until there were so many"
    how.add_argument("--reconnects", type=int, default=0, metavar="N", help=text)
    text = "instead of the schedule: end the links of Bluetooth devices, by a word or by silence, so many times"
    how.add_argument("--ble", type=int, default=0, metavar="N", help=text)
    parser.add_argument("--seed", type=int, default=1, help="of everything that is drawn (default: 1)")
    text = f"events/s of all devices (default: {RATE:.0f}, with --reconnects {RECONNECT_RATE:.0f}, with --ble {BLE_RATE:.0f})"
    parser.add_argument("--rate", type=_over_0, metavar="R", help=text)
    parser.add_argument("--devices", type=int, default=DEVICES, help=f"how many devices (default: {DEVICES})")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was found to this file")
    text = "where to draw what every process held (default: .fogline/soak/soak.svg)"
    parser.add_argument("--plot", type=Path, metavar="FILE", help=text)
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
            raise Misconfigured(f"{option} has to be over 0")
    if arguments.ble and (what := missing()):
        raise Misconfigured(f"--ble needs what stands in for Bluetooth: {what}")
    if arguments.devices < 2 * len(GATEWAYS):
        raise Misconfigured(f"--devices has to be at least {2 * len(GATEWAYS)}")
    for option, file in (("--json", arguments.json), ("--plot", arguments.plot)):
        if file is not None and not file.absolute().parent.is_dir():
            raise Misconfigured(f"{option} {file}: there is no such folder")
    counted = arguments.reconnects or arguments.ble
    faults = [] if counted else schedule(arguments.seed, arguments.minutes * 60)
    print(f"seed {arguments.seed}")
    for fault in faults:
        print(fault.text)
    if arguments.dry_run:
        return 0
    find_java()
    for jars in ("kafka", "spark"):
        find_jars(jars)
    rate = arguments.rate or (RECONNECT_RATE if arguments.reconnects else BLE_RATE if arguments.ble else RATE)
    options = Options(
        faults=faults,
        reconnects=arguments.reconnects,
        ble=arguments.ble,
        seed=arguments.seed,
        seconds=arguments.minutes * 60,
        rate=rate,
        wanted_rate=0.0 if counted else min(WANTED_RATE, 0.8 * rate),
    )
    return asyncio.run(_soak(arguments, options, Console(stderr=True)))


async def _soak(arguments: argparse.Namespace, options: Options, console: Console) -> int:
    devices = fleet(arguments.devices, len(GATEWAYS))
    serving = sum(each.serves for each in devices)
    free = choose_ports(kafka=0, amqp=0, mqtt=0, coap=0, gateways=len(GATEWAYS), serving=serving, bridges=len(BRIDGES))
    fates = Fates(arguments.seed)
    fates.calm = not options.reconnects
    async with between(free, fates) as (lines, ports):
        retry_s = (0.2, 0.5) if options.reconnects or options.ble else None
        bluetooth = crowd(len(GATEWAYS), VALVES) if options.ble else []
        place = take_folder(ports, devices, ble=bluetooth, name="soak", retry_s=retry_s)
        log = place.logs / "soak.log"
        logging.basicConfig(force=True, level=logging.INFO, filename=log, format="%(asctime)s %(message)s")
        soak = Soak(place, lines, options, console, fates=fates, fleet=devices)
        end_on_signal(soak.stop, soak.strike, console)
        verdict = await soak.run()
    if verdict is None:
        return 0
    counted = options.reconnects or options.ble
    what = f"{counted} reconnects{' of Bluetooth devices' * bool(options.ble)}" if counted else f"{arguments.minutes:g} minutes"
    plot = arguments.plot or place.folder / "soak.svg"
    drawn = panels(soak.sampler.samples, soak.sampler.flow)
    plot.write_text(draw(f"soak of {what}, seed {arguments.seed}", drawn, soak.marks), "utf-8")
    if arguments.json is not None:
        held = {
            "samples": [asdict(each) for each in soak.sampler.samples],
            "flow": [asdict(each) for each in soak.sampler.flow],
        }
        found = {"seed": arguments.seed, **verdict.as_json(), "faults": soak.done, **held}
        arguments.json.write_text(json.dumps(found, indent=2) + "\n", "utf-8")
    show(verdict, soak.sampler.samples, Console(width=max(Console().width, 120)))
    print(f"plot: {plot.relative_to(ROOT) if plot.is_relative_to(ROOT) else plot}")
    return 0 if verdict.holds else 1


def show(verdict: Verdict, samples: Sequence[Sample], console: Console) -> None:
    """For a person: what was counted, the ledger, what the processes held, what is wrong, the verdict."""
    found = verdict.judgement
    table = Table("", "", box=None, show_header=False)
    rows: list[tuple[str, object]] = [
        *found.counts,
        ("unexplained gaps", verdict.gaps),
        ("resends refused at the gateways", verdict.refused["edge"]),
        ("resends refused at the bridges", verdict.refused["bridge"]),
        *((f"kills of {part}", verdict.kills[part]) for part in verdict.planned),
        *((f"connections ended by {how}", count) for how, count in sorted(verdict.reconnects.items())),
        ("events/s offered, on average", round(verdict.load.rate)),
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
        counts = (*(each[name] for name in columns), gaps, *(each["refused"][place] for place in ("edge", "bridge")))
        shown = ("-" if count is None else f"{count:,}" for count in counts)
        table.add_row(each["gateway"], each["lane"], each["stream"], *shown)
    return table


def _over_time(samples: Sequence[Sample]) -> Table:
    """A line a moment, of each part: MB, descriptors, threads, tasks."""
    parts = sorted({each.part for each in samples if each.part.startswith(OURS)})
    table = Table("MB / descriptors / threads / tasks", *parts, box=None)
    by_time = {part: {each.at_s: each for each in samples if each.part == part} for part in parts}
    for moment in over_time(samples, "devices", ROWS):
        found = [by_time[part].get(moment.at_s) for part in parts]
        table.add_row(f"{moment.at_s / 60:.1f} min", *("down" if each is None else _shown(each) for each in found))
    return table


def _shown(each: Sample) -> str:
    return f"{each.rss_mb:.0f} / {each.descriptors} / {each.threads} / {'-' if each.tasks is None else each.tasks}"


def _held(verdict: Verdict) -> Table:
    table = Table("process", "lives", "MB warm", "lowest", "highest", "last", "descriptors", "threads", "tasks", box=None)
    for column in table.columns[1:]:
        column.justify, column.no_wrap = "right", True
    for each in verdict.held:
        counts = (f"{first:.0f} > {last:.0f}" for first, last in each.counts.values())
        table.add_row(each.part, str(each.lives), *(f"{value:.0f}" for value in each.rss_mb), *counts)
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the soak."""
    return commandline.main(build_parser(), arguments)


if __name__ == "__main__":
    sys.exit(main())
