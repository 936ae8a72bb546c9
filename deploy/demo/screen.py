"""The picture in a terminal: a live screen, or where there is none, a line every few seconds."""

import asyncio
import time

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from demo.picture import OrderNews, Picture, middle

LIVE_S = 0.25
LINE_S = 5.0


async def show(picture: Picture, console: Console, *, plain: bool) -> None:
    """Until cancelled."""
    if plain:
        while True:
            await asyncio.sleep(LINE_S)
            console.print(line(picture, time.monotonic()), highlight=False, soft_wrap=True)
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while True:
            live.update(screen(picture, time.monotonic()), refresh=True)
            await asyncio.sleep(LIVE_S)


def line(picture: Picture, now_s: float) -> str:
    """Everything that matters, in one line."""
    devices, kafka, flow = picture.devices, picture.kafka, picture.flow
    orders = f"; commands {_orders(picture.orders)}" if picture.orders.sent else ""
    ble = f" ({kafka.ble:,} by Bluetooth)" if picture.air.said else ""
    return (
        f"{picture.state}: acknowledged {devices.acknowledged.total:,} ({devices.acknowledged.rate(now_s):.0f}/s), "
        f"outboxes {picture.backlog:,}, Kafka {kafka.events.total:,}{ble} ({kafka.events.rate(now_s):.0f}/s), "
        f"table {flow.rows.total:,} rows, behind {picture.lag:,}{orders}"
    )


def screen(picture: Picture, now_s: float) -> Group:
    """The whole screen."""
    state = Text(picture.state, style="bold red" if picture.down else "bold green")
    readings = Table("device", "metric", "value", "after", box=None, pad_edge=False)
    for _, each in sorted(picture.readings.copy().items()):
        readings.add_row(each.device, each.metric, each.value, f"{each.late_s:.1f} s")
    journal = Text("\n".join(picture.journal) or "nobody yet")
    return Group(
        Panel(_stages(picture, now_s), title="Fogline", subtitle=state),
        Panel(readings, title="last readings"),
        Panel(journal, title="killed"),
    )


def _stages(picture: Picture, now_s: float) -> Table:
    table = Table("stage", box=None, expand=True, pad_edge=False)
    for name in ("arrived", "per second", "waiting", "latency", ""):
        table.add_column(name, justify="right" if name else "left")
    devices, kafka, flow = picture.devices, picture.kafka, picture.flow
    table.add_row(
        f"devices ({devices.connected} connected)",
        f"{devices.acknowledged.total:,}",
        f"{devices.acknowledged.rate(now_s):.0f}",
        f"{devices.waiting:,}",
        _ms(devices.p50_ms, devices.p99_ms),
        "acknowledged",
    )
    for name, news in picture.gateways.items():
        table.add_row(
            name, f"{news.stored.total:,}", f"{news.stored.rate(now_s):.0f}", f"{news.backlog:,}", "",
            f"{news.duplicate} resends refused",
        )  # fmt: skip
    lanes = ", ".join(f"{lane} {count:,}" for lane, count in sorted(kafka.lanes.items()))
    ends = ", ".join(f"{state} {count:,}" for state, count in sorted(picture.orders.states.items()))
    late = _ms(middle(kafka.latency_ms), None)
    table.add_row("Kafka", f"{kafka.events.total:,}", f"{kafka.events.rate(now_s):.0f}", "", late, lanes)
    table.add_row(
        "table (Spark)", f"{flow.rows.total:,}", f"{flow.rows.rate(now_s):.0f}", f"{picture.lag:,}",
        f"{flow.batch_s:.1f} s" if flow.batches else "", f"batch {flow.batch}: {flow.batch_events:,} events",
    )  # fmt: skip
    if picture.air.said:
        table.add_row(f"Bluetooth ({picture.air.linked} connected)", f"{kafka.ble:,}", "", "", "", f"{picture.air.said:,} said")
    orders = picture.orders
    table.add_row(
        "commands", f"{orders.states.total():,}", "", f"{orders.waiting:,}", _ms(middle(orders.latency_ms), None), ends
    )
    return table


def _orders(orders: OrderNews) -> str:
    ends = "".join(f", {count:,} {state}" for state, count in sorted(orders.states.items()))
    return f"{orders.sent:,}{ends}, {orders.waiting:,} waiting"


def _ms(half: float | None, most: float | None) -> str:
    if half is None:
        return ""
    return f"{half:.0f} ms" if most is None else f"{half:.0f} / {most:.0f} ms"
