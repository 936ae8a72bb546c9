"""Counters of a process. On the signal SIGUSR1 it prints them as one JSON line on stdout."""

import asyncio
import signal
from collections.abc import Iterator

from fogline.amqp.driver import open_connections
from fogline.process.console.command_line import announce
from fogline.process.monitoring.metrics import Sample


def answer_sigusr1() -> None:
    """Install the signal handler on the running loop."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, lambda: announce(census=census()))


def census() -> dict[str, int]:
    """Return the counters of this process. Called on the loop. `unsettled` includes messages that wait to be sent."""
    connections = open_connections()
    return {
        "tasks": len(asyncio.all_tasks()),
        "connections": len(connections),
        "unsettled": sum(each.unsettled for each in connections),
    }


def read_process() -> Iterator[Sample]:
    """Yield the counters of this process as samples. Called on the loop."""
    yield from (Sample(f"fogline_process_{name}", value) for name, value in census().items())
