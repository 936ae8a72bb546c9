"""MQTT QoS 1 in, a peer that accepts everything out: our gateway beside a mosquitto bridge and a bare loop of SQLite.

The figures of a row are keyed `row/system/column`; gateway_table.py prints them.
"""

import resource
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from gateway_rows import GATEWAY, MOSQUITTO, SQLITE, GatewayRow
from processes import NOT_MEASURED, Bench, Failed, cpu_s, quantile
from systems import System, gateway, mosquitto
from usage import Usage

from fogline_lab.cpu_quota import cpu_quota
from fogline_lab.loop_disk import LoopDisk, loop_disk

ROW_BYTES = 320
"""The bytes of an event's row in the outbox beside its payload."""
MEMORY_BYTES = 512_000_000
"""The memory of a gateway with a share of a CPU."""
DISK_BYTES = 2_000_000_000
LEAST_EVENTS_S = 100
"""The slowest system that this waits for, in events per second."""


def measure(bench: Bench) -> dict[str, float]:
    """Measure each chosen row on each of its systems, one after the other. Rows with a rate: in the first run only."""
    found: dict[str, float] = {}
    options = bench.gateway_options
    for row in options.chosen():
        if row.rate and bench.number > 1:
            continue
        group = 0.0
        for system in row.systems:
            if system not in options.systems or (system == SQLITE and not group):
                continue
            bench.say(f"{row.name}: {system}")
            try:
                figures = bare_sqlite(bench, row, round(group)) if system == SQLITE else through(bench, row, system)
            except NOT_MEASURED as error:
                bench.fail(f"{row.name}: {system}", error)
                continue
            if system == GATEWAY:
                group = 1 / figures["syncs"]
            found |= {f"{row.name}/{system}/{column}": value for column, value in figures.items()}
        ours, theirs = (found.get(f"{row.name}/{system}/events") for system in (GATEWAY, MOSQUITTO))
        if ours and theirs and not row.rate:
            found[f"{row.name}/{GATEWAY}/ratio"] = ours / theirs
    return found


def events_of(bench: Bench, row: GatewayRow) -> int:
    """The number of events of a row, a multiple of its connections."""
    events = round(row.rate * bench.gateway_options.paced_s) if row.rate else bench.events
    return max(1, events // row.connections) * row.connections


def through(bench: Bench, row: GatewayRow, system: str) -> dict[str, float]:
    """Publish the events of a row into a system, until it has passed on and forgotten all, and ended."""
    events = events_of(bench, row)
    with (
        place(bench, system) as disk,
        running(bench, row, system, disk.folder) as measured,
        bench.child(
            "load",
            *bench.program("mqtt_load"),
            *(measured.port, row.connections, row.devices, events, row.rate, row.payload_bytes, row.window),
        ) as load,
        limited(bench, row, measured),
    ):
        load.next_line()
        helpers = (load, *measured.helpers)
        written, helped_s = disk.written(), sum(map(cpu_s, helpers))
        before = measured.process.usage()
        load.tell("go")
        took_s = load.next_line(60 + (events / row.rate if row.rate else events / LEAST_EVENTS_S))["seconds"]
        counted = measured.drain(events)
        helped_s = sum(map(cpu_s, helpers)) - helped_s
        load.tell("times")
        times = load.next_line()
        measured.peer.tell("arrivals")
        arrived = arrivals(measured.peer.next_line(), events)
        used = measured.end().since(before)
        written = disk.written() - written
    sent, acknowledged = times["sent"], times["acknowledged"]
    seconds = (max(arrived) - min(sent)) / 1e9
    return {
        "events": events / seconds,
        "acknowledged": events / took_s,
        **per_event(used, events, seconds),
        **delays("", sent, arrived),
        **delays("ack_", sent, acknowledged),
        "wire": counted["bytes"] / counted["events"],
        "helpers": helped_s / events * 1000,
        **({"device": written / events} if disk.device else {}),
    }


@dataclass(frozen=True, slots=True)
class Place:
    """The folder of a system's data. `device`: its file system, if it is one of its own."""

    folder: Path
    device: LoopDisk | None = None

    def written(self) -> int:
        """Return the bytes written to the device until now; 0 without one."""
        return self.device.written_bytes() if self.device else 0


@contextmanager
def place(bench: Bench, system: str) -> Iterator[Place]:
    """An empty folder, with `--block-device` on a file system of its own."""
    folder = bench.subfolder(system)
    if not bench.gateway_options.block_device:
        yield Place(folder)
        return
    with loop_disk(bench.folder / f"{system}.image", folder, DISK_BYTES) as device:
        yield Place(folder, device)


@contextmanager
def limited(bench: Bench, row: GatewayRow, measured: System) -> Iterator[None]:
    """Limit CPU and memory, if the row does so."""
    if not row.core:
        yield
        return
    resource.prlimit(measured.process.pid, resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    with cpu_quota(measured.process.pid, row.core) as means:
        bench.say(f"{row.name}: {row.core:.0%} of one CPU by {means}, {MEMORY_BYTES / 1e6:.0f} MB of data")
        yield


def running(bench: Bench, row: GatewayRow, system: str, folder: Path) -> AbstractContextManager[System]:
    """Start a system for a row."""
    if system == MOSQUITTO:
        return mosquitto(bench, folder)
    card = bench.gateway_options.card if row.card else ()
    return gateway(bench, folder, (*card, *row.settings), tls=row.tls)


def arrivals(pairs: Sequence[tuple[int | None, int]], events: int) -> list[int]:
    """Return the arrival time of each event. Raises `Failed` if one is missing or came twice."""
    found = {number: at for number, at in pairs if number is not None}
    if missing := events - len(found):
        raise Failed(f"{missing} of {events} events did not come")
    if len(pairs) > events:
        raise Failed(f"{len(pairs) - events} events came twice")
    return [found[n] for n in range(events)]


def per_event(used: Usage, events: int, seconds: float) -> dict[str, float]:
    """What a process used, per event."""
    return {
        "cpu": used.cpu_s / events * 1000,
        "written": used.write_bytes / events,
        "writes": used.write_calls / events,
        "syncs": used.syncs / events,
        "syncs_s": used.syncs / seconds,
        "rss": used.peak_rss_bytes / 2**20,
    }


def delays(name: str, sent: list[int], came: list[int]) -> dict[str, float]:
    """p50 and p99 of the time between, in milliseconds."""
    each = [(b - a) / 1e6 for a, b in zip(sent, came, strict=True)]
    return {f"{name}p{percent}": quantile(each, percent / 100) for percent in (50, 99)}


def bare_sqlite(bench: Bench, row: GatewayRow, group: int) -> dict[str, float]:
    """Insert rows of the same size in groups of the size that the gateway had, at the rate of the row."""
    events, size = events_of(bench, row), ROW_BYTES + row.payload_bytes
    file = bench.subfolder("bare") / "bare.db"
    with bench.metered("sqlite", *bench.program("sqlite_loop"), file, events, max(1, group), size, row.rate) as process:
        process.child.next_line()
        before = process.usage()
        process.child.tell("go")
        seconds = process.child.next_line(300 + bench.gateway_options.paced_s)["seconds"]
        process.child.tell("end")
        process.child.wait()
        used = process.end().since(before)
    return {"events": events / seconds, **per_event(used, events, seconds)}
