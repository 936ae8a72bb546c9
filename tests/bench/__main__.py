"""How fast is it, against the parts that it is made of? Every figure is the median of some runs, side by side.

    make bench                                              everything, three runs each
    make bench ARGS="--only bridge flow --runs 1"           these, once
    make bench ARGS="--events 20000 --json bench.json"      half as much of everything, into a file as well

Absolute figures are this machine's; the ratios are what to compare. docs/performance.md says how to read them.

exit status: 0 measured; 1 measured, and with --check a goal was missed; 2 something could not be measured.
"""

import argparse
import json
import platform
import signal
import statistics
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import bridge
import commands
import flow
import gateway
import latency
from processes import Bench, Failed
from table import short, table

from fogline.errors import FoglineError
from fogline.installed import find_jars

MEASURES = {
    "gateway": gateway.measure,
    "latency": latency.measure,
    "bridge": bridge.measure,
    "flow": flow.measure,
    "commands": commands.measure,
}


def main() -> int:
    """Run everything, print one table."""
    arguments = parsed()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    failed: list[str] = []
    try:
        runs = run_all(arguments, failed)
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")
        return 2
    medians = {key: statistics.median(values) for key, values in runs.items()}
    if medians:
        print(table(medians))
    if arguments.json:
        arguments.json.write_text(json.dumps({"on": versions(), "medians": medians, "runs": runs}, indent=1) + "\n")
    missed = short(medians)
    if failed:
        return 2
    if arguments.check and missed:
        sys.stderr.write("".join(f"short of its goal: {each}\n" for each in missed))
        return 1
    return 0


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="make bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=3, help="runs of each (default: 3)")
    parser.add_argument(
        "--events", type=int, default=40_000, help="events of the gateway's row, to which others scale (default: 40000)"
    )
    parser.add_argument("--only", nargs="+", choices=MEASURES, default=list(MEASURES), metavar="NAME", help=", ".join(MEASURES))
    parser.add_argument("--json", type=Path, help="write medians, every run and versions here as well")
    parser.add_argument("--check", action="store_true", help="status 1 if a goal is missed")
    return parser.parse_args()


def run_all(arguments: argparse.Namespace, failed: list[str]) -> dict[str, list[float]]:
    """The values of each row, one a run. What could not be measured is told, added to `failed`, and not tried again."""
    runs: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="fogline-bench-", ignore_cleanup_errors=True) as folder:
        bench = Bench(Path(folder), arguments.events)
        try:
            for bench.number in range(1, arguments.runs + 1):
                for name in arguments.only:
                    if name in failed:
                        continue
                    began = time.monotonic()
                    sys.stderr.write(f"run {bench.number} of {arguments.runs}: {name}\n")
                    try:
                        measured = MEASURES[name](bench)
                    except (Failed, FoglineError, OSError, TimeoutError) as error:
                        failed.append(name)
                        sys.stderr.write(f"  not measured: {error or type(error).__name__}\n")
                        continue
                    for key, value in measured.items():
                        runs.setdefault(key, []).append(value)
                    bench.say(f"{time.monotonic() - began:.0f} s")
        finally:
            bench.close()
    return runs


def versions() -> dict[str, str]:
    """What was measured with what."""
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
