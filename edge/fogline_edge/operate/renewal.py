"""Renews the gateway's certificate while it serves, when two thirds of its time have passed.

The work is done by a child process, `fogline-edge renew`, because it takes a library of 6 MB, once in three weeks. The gateway
shows the new certificate with its next connection; the bridge ends the present one when its certificate expires.
"""

import asyncio
import contextlib
import logging
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from fogline.errors import Misconfigured

LOOK_S: Final = 3600.0
"""Longest pause between two looks at the certificate."""
RETRIES: Final = 60
"""Share of the certificate's time that is the pause after an attempt: there are some 20 attempts before it ends."""
LIMIT_S: Final = 120.0
_TIMES = re.compile(r"^# issued (\S+), ends (\S+)$", re.MULTILINE)
_log = logging.getLogger("fogline.renewal")


def times_line(issued: datetime, ends: datetime) -> str:
    """Return the line of a certificate's file that states its times, for `read_times`."""
    return f"# issued {issued:%Y-%m-%dT%H:%M:%S%z}, ends {ends:%Y-%m-%dT%H:%M:%S%z}\n"


def read_times(path: str) -> tuple[datetime, datetime]:
    """Return when the certificate in a file of `fogline-edge enroll` was issued, and ends. Raises `Misconfigured`."""
    try:
        found = _TIMES.search(Path(path).read_text("ascii"))
    except (OSError, UnicodeDecodeError) as error:
        raise Misconfigured(f"uplink.tls.certificate: cannot read {path}: {error}") from None
    if found is None:
        raise Misconfigured(f"uplink.renew: {path} is not from `fogline-edge enroll`, so it cannot be renewed: set it to false")
    return datetime.fromisoformat(found[1]), datetime.fromisoformat(found[2])


def pause_s(issued: datetime, ends: datetime) -> float:
    """Return the pause after an attempt, also after the certificate has ended: each attempt is a process of its own."""
    return min(max((ends - issued).total_seconds() / RETRIES, 1.0), LOOK_S)


def due_in_s(issued: datetime, ends: datetime, now: datetime) -> float:
    """Return the seconds until two thirds of the time have passed; 0 or less if they have."""
    return (issued + (ends - issued) * 2 / 3 - now).total_seconds()


async def renew_in_time(certificate: str, config: Path) -> None:
    """Renew again and again; ends only by cancellation. `config`: the settings file."""
    while True:
        try:
            issued, ends = read_times(certificate)
        except Misconfigured as error:  # the file was replaced by hand
            _log.error("%s", error)
            await asyncio.sleep(LOOK_S)
            continue
        wait_s = due_in_s(issued, ends, datetime.now(UTC))
        if wait_s <= 0:
            if why := await _renew(config):
                _log.warning("the certificate, which ends at %s, was not renewed: %s", ends.isoformat(), why)
            else:
                _log.info("the certificate was renewed")
            wait_s = pause_s(issued, ends)
        await asyncio.sleep(min(wait_s, LOOK_S))


async def _renew(config: Path) -> str:
    """Run the child process. Returns why it failed, "" if it did not."""
    command = [sys.executable, "-m", "fogline_edge.cli", "renew", "--config", str(config)]
    child = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(LIMIT_S):
            _, errors = await child.communicate()
    except TimeoutError:
        return f"it took longer than {LIMIT_S:.0f} s"
    finally:
        if child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            await child.wait()
    lines = errors.decode("utf-8", "replace").strip().splitlines()
    return "" if child.returncode == 0 else (lines or ["no reason given"])[-1]
