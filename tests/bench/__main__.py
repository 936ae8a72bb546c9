"""Measures speed and memory, against the bare parts. Every figure is the median of several runs, side by side.

    make bench                                              everything
    make bench ARGS="--only bridge flow --runs 1"           these, once
    make bench ARGS="--events 20000 --json bench.json"      half as much of everything, into a file as well
    make bench ARGS="--only gateway --rows one-connection --runs 1"
    make bench ARGS="--only gateway --rows '*-20' '*-20-card' --minutes 10"

Absolute figures are this machine's; the ratios are what to compare. docs/proofs/performance.md says how to read them.

exit status: 0 measured; 1 measured, and with --check a goal was missed; 2 something could not be measured.
"""

import argparse
import fnmatch
import json
import platform
import signal
import statistics
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import bodies
import bridge
import bridges
import closed_day
import commands
import commits
import crowd
import dedup
import fleet
import flow
import gateway
import hot
import key_look_ups
import killers
import last_hop
import ledger
import memory
import pages
import reaction
import replay
import scale
import sink
import start
import store
import tls
import via
import way_out
import windows
from gateway_rows import CARD, GATEWAY_ROWS, SYSTEMS, GatewayOptions
from gateway_table import gateway_table, is_gateway_key, missed
from processes import NOT_MEASURED, Bench
from table import short, table

import rules
from fogline.installed import find_jars

MEASURES = {
    "gateway": gateway.measure,
    "memory": memory.measure,
    "start": start.measure,
    "bridge": bridge.measure,
    "bodies": bodies.measure,
    "bridges": bridges.measure,
    "flow": flow.measure,
    "reaction": reaction.measure,
    "replay": replay.measure,
    "commits": commits.measure,
    "dedup": dedup.measure,
    "keys": key_look_ups.measure,
    "closed_day": closed_day.measure,
    "ledger": ledger.measure,
    "fleet": fleet.measure,
    "sink": sink.measure,
    "killers": killers.measure,
    "commands": commands.measure,
    "pages": pages.measure,
    "rules": rules.measure,
    "scale": scale.measure,
    "crowd": crowd.measure,
    "hot": hot.measure,
    "last_hop": last_hop.measure,
    "store": store.measure,
    "tls": tls.measure,
    "via": via.measure,
    "way_out": way_out.measure,
    "windows": windows.measure,
}
RUNS = {
    "gateway": 5,
    "bridges": 1,
    "commits": 1,
    "dedup": 1,
    "keys": 1,
    "closed_day": 1,
    "ledger": 1,
    "fleet": 1,
    "killers": 1,
    "scale": 1,
    "crowd": 1,
    "store": 1,
    "windows": 1,
}


def main() -> int:
    """Run everything, print one table."""
    arguments = parsed()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        runs, failures = run_all(arguments)
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")
        return 2
    medians = {key: statistics.median(values) for key, values in runs.items()}
    ours = {key: values for key, values in runs.items() if is_gateway_key(key)}
    others = {key: value for key, value in medians.items() if not is_gateway_key(key)}
    if ours:
        print(gateway_table(ours))
    if others:
        print(table(others))
    if arguments.json:
        arguments.json.write_text(json.dumps({"on": versions(), "medians": medians, "runs": runs}, indent=1) + "\n")
    goals_missed = [*missed(ours), *short(others)]
    if failures:
        return 2
    if arguments.check and goals_missed:
        sys.stderr.write("".join(f"short of its goal: {each}\n" for each in goals_missed))
        return 1
    return 0


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="make bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--runs",
        type=int,
        help="runs of each (default: 5 of the gateway's rows at full speed, 3 of others, 1 of slow ones)",
    )
    parser.add_argument(
        "--events",
        type=int,
        default=40_000,
        help="events of a gateway's row at full speed; others scale (default: 40000)",
    )
    parser.add_argument("--only", nargs="+", choices=MEASURES, default=list(MEASURES), metavar="NAME", help=", ".join(MEASURES))
    parser.add_argument("--json", type=Path, help="write medians, every run and versions here as well")
    parser.add_argument("--check", action="store_true", help="status 1 if a goal is missed")
    gateways = parser.add_argument_group("rows of the gateway")
    names = ", ".join(GATEWAY_ROWS)
    gateways.add_argument("--rows", nargs="+", default=["*"], metavar="ROW", help=f"names or patterns: {names}")
    gateways.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), help="what to measure (default: all)")
    length = gateways.add_mutually_exclusive_group()
    length.add_argument("--minutes", type=float, help="length of a row with a rate")
    length.add_argument("--seconds", type=float, default=60.0, help="length of a row with a rate (default: 60)")
    gateways.add_argument(
        "--card",
        nargs="+",
        default=list(CARD),
        metavar="TABLE.KEY=VALUE",
        help=f"settings of rows -card (default: {CARD[0]})",
    )
    gateways.add_argument("--block-device", action="store_true", help="measure on a loop device of its own (needs root)")
    arguments = parser.parse_args()
    for pattern in arguments.rows:
        if not fnmatch.filter(GATEWAY_ROWS, pattern):
            parser.error(f"no row of the gateway is named {pattern}: {names}")
    return arguments


def gateway_options(arguments: argparse.Namespace) -> GatewayOptions:
    """The choice of rows, systems and lengths."""
    return GatewayOptions(
        rows=tuple(arguments.rows),
        systems=tuple(arguments.systems),
        paced_s=arguments.minutes * 60 if arguments.minutes else arguments.seconds,
        card=tuple(arguments.card),
        block_device=arguments.block_device,
    )


def run_all(arguments: argparse.Namespace) -> tuple[dict[str, list[float]], set[str]]:
    """Return the values of each row, one a run, and the names of what could not be measured, which is not tried again."""
    runs: dict[str, list[float]] = {}
    wanted = {name: arguments.runs or RUNS.get(name, 3) for name in arguments.only}
    with tempfile.TemporaryDirectory(prefix="fogline-bench-", ignore_cleanup_errors=True) as folder:
        bench = Bench(Path(folder), arguments.events, gateway_options(arguments))
        try:
            for bench.number in range(1, max(wanted.values()) + 1):
                for name in arguments.only:
                    if name in bench.failures or bench.number > wanted[name]:
                        continue
                    began = time.monotonic()
                    sys.stderr.write(f"run {bench.number} of {wanted[name]}: {name}\n")
                    try:
                        measured = MEASURES[name](bench)
                    except NOT_MEASURED as error:
                        bench.fail(name, error)
                        continue
                    for key, value in measured.items():
                        runs.setdefault(key, []).append(value)
                    bench.say(f"{time.monotonic() - began:.0f} s")
        finally:
            bench.close()
    return runs, bench.failures


def versions() -> dict[str, str]:
    """Return the versions of the measured programs."""
    kafka = next((jar.stem.rpartition("-")[2] for jar in find_jars("kafka") if jar.stem.startswith("kafka-clients-")), "")
    return {
        "date": time.strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "kafka": kafka,
        "spark": version("pyspark"),
        "confluent-kafka": version("confluent-kafka"),
    }


if __name__ == "__main__":
    sys.exit(main())
