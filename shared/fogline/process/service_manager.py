"""What a process tells the service manager that started it (systemd: sd_notify(3)). Without a service manager, nothing.

The manager gives the address of its socket in `NOTIFY_SOCKET`, and in `WATCHDOG_USEC` the time after which it kills a process
that has not pinged the watchdog, and starts it again.
"""

import asyncio
import contextlib
import logging
import math
import os
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from fogline.process.cancellation import end_tasks

READY = "READY=1"
STOPPING = "STOPPING=1"
_PROGRESS = "WATCHDOG=1"
_MAX_STATUS = 500
_last_told = -math.inf  # on the monotonic clock, which begins at about 0 when the machine starts

_log = logging.getLogger("fogline.watchdog")


def tell(text: str) -> None:
    """Send a message. A manager that cannot be reached is ignored: the process serves without it. Any thread may call this."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.connect(f"\0{address[1:]}" if address.startswith("@") else address)
        line.send(text.encode())


def patience_s() -> float:
    """Return the seconds without a ping after which this process is killed; 0: never."""
    if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return 0.0
    text = os.environ.get("WATCHDOG_USEC", "0")
    return int(text) / 1e6 if text.isdigit() else 0.0


def tell_progress() -> None:
    """Ping the watchdog if there is one, at most three times in the manager's patience."""
    global _last_told  # noqa: PLW0603 - one process has one manager
    patience, now = patience_s(), time.monotonic()
    if patience and now - _last_told >= patience / 3:
        _last_told = now
        tell(_PROGRESS)


def tell_status(text: str) -> None:
    """Set the line that `systemctl status` shows. An empty text removes it."""
    tell(f"STATUS={' '.join(text.split())[:_MAX_STATUS]}")


@contextlib.asynccontextmanager
async def watched(answers: Callable[[], Awaitable[str | None]], status: Callable[[], str] = str) -> AsyncIterator[None]:
    """Ping the watchdog while `answers` returns nothing; otherwise report the stuck part that it returns.

    `status` returns the line that `systemctl status` shows, for example why a working process waits.
    """

    async def tell_again_and_again() -> None:
        shown = ""
        while True:
            stuck = await answers()
            if not stuck:
                tell(_PROGRESS)
            if (text := stuck or status()) != shown:
                tell_status(shown := text)
                if stuck:
                    _log.error("the service manager has to start this process again: %s", stuck, extra={"reason": "stuck"})
            await asyncio.sleep(patience_s() / 3)

    if not patience_s():
        yield
        return
    task = asyncio.create_task(tell_again_and_again(), name="watchdog")
    try:
        yield
    finally:
        await end_tasks(task)
