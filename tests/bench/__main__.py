"""How fast is it, against the parts that it is made of? Every figure is the median of some runs, side by side.

    make bench                       everything, three runs each
    make bench ARGS="--runs 1 --events 20000 --json bench.json"

Absolute figures are this machine's; the ratios are what to compare. docs/performance.md says how to read them.
"""

import argparse
import json
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
GROUP = 256
PAYLOAD = b"x" * 420  # what a row of the outbox holds for 100 bytes of JSON


def bare_sqlite(events: int) -> dict[str, float]:
    """A bare loop: the same number of rows, the same group size, `synchronous=FULL`, nothing else."""
    with tempfile.TemporaryDirectory() as folder:
        connection = sqlite3.connect(Path(folder) / "bare.db", isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE event (sequence INTEGER PRIMARY KEY, body BLOB)")
        began, cpu = time.perf_counter(), time.process_time()
        for first in range(0, events, GROUP):
            connection.execute("BEGIN")
            connection.executemany("INSERT INTO event VALUES (?, ?)", [(n, PAYLOAD) for n in range(first, first + GROUP)])
            connection.execute("COMMIT")
        seconds = time.perf_counter() - began
        return {
            "bare SQLite FULL, events/s": events / seconds,
            "bare SQLite, CPU s per 1000": (time.process_time() - cpu) / events * 1000,
        }


def gateway(events: int) -> dict[str, float]:
    """MQTT QoS 1 in, AMQP out: the gateway's own process, a publisher and a peer that only accept."""
    with tempfile.TemporaryDirectory() as folder:
        peer = subprocess.Popen(
            [sys.executable, HERE / "null_peer.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        port = int(peer.stdout.readline())
        settings = Path(folder) / "edge.toml"
        settings.write_text(
            f'tenant = "bench"\ngateway = "gw"\ndata = "data"\n[uplink]\nbridge = "127.0.0.1:{port}"\n[mqtt]\nport = 0\n'
        )
        process = subprocess.Popen(
            [Path(sys.executable).parent / "fogline-edge", "run", "--config", settings],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        ready = json.loads(process.stdout.readline())
        mqtt_port = ready["mqtt"].rpartition(":")[2]
        before = cpu_s(process.pid)
        began = time.perf_counter()
        result = subprocess.run(
            [sys.executable, HERE / "publisher.py", mqtt_port, str(events), "8", "200"],
            capture_output=True,
            check=True,
            timeout=300,
        )
        counted = wait_for(peer, events)
        through = time.perf_counter() - began
        used = cpu_s(process.pid) - before
        rss = peak_rss_mib(process.pid)
        process.terminate()
        process.wait(30)
        peer.stdin.close()
        peer.wait(30)
    return {
        "gateway MQTT QoS 1, acknowledged events/s": events / json.loads(result.stdout)["seconds"],
        "gateway MQTT -> AMQP settled, events/s": events / through,
        "gateway, CPU s per 1000": used / events * 1000,
        "gateway, peak RSS MiB": rss,
        "on the wire, bytes an event": counted["bytes"] / counted["events"],
    }


def wait_for(peer: subprocess.Popen, events: int) -> dict[str, int]:
    """Until the peer has counted all of them."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        peer.stdin.write("\n")
        peer.stdin.flush()
        counted = json.loads(peer.stdout.readline())
        if counted["events"] >= events:
            return counted
        time.sleep(0.02)
    raise SystemExit(f"the peer got {counted['events']} of {events} events in 120 s")


def cpu_s(pid: int) -> float:
    """User and system time of a process, seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def peak_rss_mib(pid: int) -> float:
    """The most memory that a process had."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def main() -> int:
    """Run everything, print one table."""
    parser = argparse.ArgumentParser(
        prog="make bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=3, help="runs of each (default: 3)")
    parser.add_argument("--events", type=int, default=40_000, help="events a run (default: 40000)")
    parser.add_argument("--json", type=Path, help="write the medians here as well")
    arguments = parser.parse_args()
    runs: dict[str, list[float]] = {}
    for run in range(arguments.runs):
        for measure in (bare_sqlite, gateway):
            sys.stderr.write(f"run {run + 1} of {arguments.runs}: {measure.__name__}\n")
            for name, value in measure(arguments.events).items():
                runs.setdefault(name, []).append(value)
    medians = {name: statistics.median(values) for name, values in runs.items()}
    medians["gateway acknowledged / bare SQLite"] = (
        medians["gateway MQTT QoS 1, acknowledged events/s"] / medians["bare SQLite FULL, events/s"]
    )
    width = max(map(len, medians))
    for name, value in medians.items():
        print(f"{name:<{width}}  {value:>12,.3f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(medians, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
