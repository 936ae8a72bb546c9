"""What a process holds at this moment, told when it is asked: `kill -USR1` has it print one JSON line on stdout."""

import asyncio
import signal

from fogline.amqp.driver import open_connections
from fogline.commandline import announce


def answer_sigusr1() -> None:
    """From now on, on the running loop."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, lambda: announce(census=census()))


def census() -> dict[str, int]:
    """Count it. `tasks`: of the running loop; `connections`: of AMQP, with an open socket.

    `unsettled`: messages sent on those, or waiting to be, of which the peer has not said what became.
    """
    connections = open_connections()
    return {
        "tasks": len(asyncio.all_tasks()),
        "connections": len(connections),
        "unsettled": sum(each.unsettled for each in connections),
    }
