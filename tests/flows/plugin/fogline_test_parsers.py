"""Parsers of a plugin distribution, as somebody else would install them, each wrong in its own way."""

import hashlib
import os
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from fogline.events.event import Event
from fogline_cloud.flows.parsers import Reading, Retry
from fogline_cloud.flows.parsers.json_values import parse as parse_json


def endless(event: Event) -> Iterator[Reading]:
    """Never comes back."""
    number = 0
    while True:
        number += 1
        if number < 0:
            yield Reading("never", 0.0)


def tardy(event: Event) -> list[Reading]:
    """Takes as many seconds of CPU time as the body says."""
    end_s = time.process_time() + float(event.data)
    while time.process_time() < end_s:
        pass
    return [Reading("took", float(event.data))]


def wrong(event: Event) -> Iterator[Reading]:
    """Fails after the first reading."""
    yield Reading("first", 1.0)
    raise LookupError("the table of this device is empty")


def again(event: Event) -> list[Reading]:
    """Always wants another try."""
    raise Retry


def deadly(event: Event) -> list[Reading]:
    """Does what the body says: ends its process, stays in native code, takes memory, never comes back, or fails."""
    match event.data:
        case b"kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case b"endless C":
            hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)
        case b"8 GB":
            bytearray(8 << 30)
        case b"endless":
            list(endless(event))
        case b"error":
            list(wrong(event))
    return [Reading("size", float(len(event.data)))]


def deadly_json(event: Event) -> Iterable[Reading]:
    """Reads JSON, unless the body is one of `deadly`."""
    return parse_json(event) if event.data.startswith(b"{") else deadly(event)


def stuck(event: Event) -> list[Reading]:
    """Does not return before somebody writes to the pipe that the body names, whatever the time limit is."""
    former = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    try:
        with Path(event.data.decode()).open("rb", buffering=0) as pipe:
            pipe.read(1)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)
    return [Reading("free", 1.0)]
