"""Live screen in a terminal, or one line every few seconds where there is none."""

import asyncio
import time

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from demo.snapshot import CommandStats, Snapshot, middle

LIVE_S = 0.25
LINE_S = 5.0


async def show(snapshot: Snapshot, console: Console, *, plain: bool) -> None:
    """Show the snapshot until cancelled."""
    if plain:
        while True:
            await asyncio.sleep(LINE_S)
            console.print(line(snapshot, time.monotonic()), highlight=False, soft_wrap=True)
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while True:
            live.update(screen(snapshot, time.monotonic()), refresh=True)
            await asyncio.sleep(LIVE_S)


def line(snapshot: Snapshot, now_s: float) -> str:
    """Format the snapshot as one line."""
    devices, kafka, flow = snapshot.devices, snapshot.kafka, snapshot.flow
    commands = f"; commands {_commands_text(snapshot.commands)}" if snapshot.commands.sent else ""
    ble = f" ({kafka.ble:,} by Bluetooth)" if snapshot.air.said else ""
    return (
        f"{snapshot.state}: acknowledged {devices.acknowledged.total:,} ({devices.acknowledged.rate(now_s):.0f}/s), "
        f"outboxes {snapshot.backlog:,}, Kafka {kafka.events.total:,}{ble} ({kafka.events.rate(now_s):.0f}/s), "
        f"table {flow.rows.total:,} rows, behind {snapshot.lag:,}{commands}"
    )


def screen(snapshot: Snapshot, now_s: float) -> Group:
    """Build the live screen."""
    state = Text(snapshot.state, style="bold red" if snapshot.down else "bold green")
    readings = Table("device", "metric", "value", "after", box=None, pad_edge=False)
    for _, each in sorted(snapshot.readings.copy().items()):
        readings.add_row(each.device, each.metric, each.value, f"{each.late_s:.1f} s")
    journal = Text("\n".join(snapshot.journal) or "none yet")
    return Group(
        Panel(_stages(snapshot, now_s), title="Fogline", subtitle=state),
        Panel(readings, title="last readings"),
        Panel(journal, title="kills"),
    )


def _stages(snapshot: Snapshot, now_s: float) -> Table:
    table = Table("stage", box=None, expand=True, pad_edge=False)
    for name in ("arrived", "per second", "waiting", "latency", ""):
        table.add_column(name, justify="right" if name else "left")
    devices, kafka, flow = snapshot.devices, snapshot.kafka, snapshot.flow
    table.add_row(
        f"devices ({devices.connected} connected)",
        f"{devices.acknowledged.total:,}",
        f"{devices.acknowledged.rate(now_s):.0f}",
        f"{devices.waiting:,}",
        _ms(devices.p50_ms, devices.p99_ms),
        "acknowledged",
    )
    for name, stats in snapshot.gateways.items():
        table.add_row(
            name, f"{stats.stored.total:,}", f"{stats.stored.rate(now_s):.0f}", f"{stats.backlog:,}", "",
            f"{stats.duplicate} retransmissions discarded",
        )  # fmt: skip
    lanes = ", ".join(f"{lane} {count:,}" for lane, count in sorted(kafka.lanes.items()))
    ends = ", ".join(f"{state} {count:,}" for state, count in sorted(snapshot.commands.states.items()))
    late = _ms(middle(kafka.latency_ms), None)
    table.add_row("Kafka", f"{kafka.events.total:,}", f"{kafka.events.rate(now_s):.0f}", "", late, lanes)
    table.add_row(
        "table (Spark)", f"{flow.rows.total:,}", f"{flow.rows.rate(now_s):.0f}", f"{snapshot.lag:,}",
        f"{flow.batch_s:.1f} s" if flow.batches else "", f"batch {flow.batch}: {flow.batch_events:,} events",
    )  # fmt: skip
    if snapshot.air.said:
        table.add_row(
            f"Bluetooth ({snapshot.air.linked} connected)", f"{kafka.ble:,}", "", "", "", f"{snapshot.air.said:,} said"
        )
    commands = snapshot.commands
    table.add_row(
        "commands", f"{commands.states.total():,}", "", f"{commands.waiting:,}", _ms(middle(commands.latency_ms), None), ends
    )
    return table


def _commands_text(commands: CommandStats) -> str:
    ends = "".join(f", {count:,} {state}" for state, count in sorted(commands.states.items()))
    return f"{commands.sent:,}{ends}, {commands.waiting:,} waiting"


def _ms(half: float | None, most: float | None) -> str:
    if half is None:
        return ""
    return f"{half:.0f} ms" if most is None else f"{half:.0f} / {most:.0f} ms"
