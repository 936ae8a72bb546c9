"""Runs parsers in a forked child of this process, so that one that ends its process, or never returns, costs one event.

The child has every event in its memory by the fork. It writes each result to a file in memory that both share, so the first
event without a result is the one at which it ended. The parent ends it by the clock.
"""

import ctypes
import gc
import os
import select
import signal
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NoReturn

import msgspec

from fogline.events.event import Event
from fogline_cloud.flows.sandbox.memory_limit import memory_limit
from fogline_cloud.flows.sandbox.parser_runner import KILLED, NO_MEMORY, ParseResult, detail_text
from fogline_cloud.flows.tables.schema import EventOutcome

_HEAD = struct.Struct("!QQ")  # of a result: its size, and `time.monotonic_ns()` after it
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(ParseResult)
_LIBC = ctypes.CDLL(None)
_END_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl(2)
_KILL_FIRST = "1000"  # the kernel's out-of-memory killer takes the child, not the worker or the JVM

Asked = tuple[str, Event]
"""A parser's name, and the event to parse."""
Run = Callable[[str, Event], ParseResult]
"""Runs the parser of this name on an event."""


def run_in_child(run: Run, asked: Sequence[Asked], *, silence_s: float, memory_bytes: int) -> tuple[list[ParseResult], bool]:
    """Return the results of the first of these events, of one at least, and whether the last one ended the child.

    `silence_s`: the child is ended if no result comes for so long, or for twice as long at most. `memory_bytes`: see
    `memory_limit`.
    """
    began_ns = time.monotonic_ns()
    ends, held = os.pipe()  # the child has the other end open until it ends
    with os.fdopen(os.memfd_create("results"), "r+b", buffering=0) as shared:
        child = os.fork()
        if child == 0:
            os.close(ends)
            _be_child(run, asked, shared, memory_bytes)
        os.close(held)
        try:
            late = not _has_ended(ends, shared, silence_s)
        finally:
            os.kill(child, signal.SIGKILL)  # does nothing to a child that has ended
            os.close(ends)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        shared.seek(0)
        results, ended_ns = _read(shared.read(), began_ns)
    if results and results[-1].reason == NO_MEMORY:
        return results[:-1] or results, False  # an earlier event may have taken the memory: a new child tries this one again
    is_killer = len(results) < len(asked)
    if is_killer:
        took_us = (time.monotonic_ns() - ended_ns) // 1000
        results.append(_verdict(asked[len(results)][0], code, took_us, late=late))
    return results, is_killer


def _has_ended(ends: int, shared: BinaryIO, silence_s: float) -> bool:
    """Wait for the end of the child. Returns False if no result comes for `silence_s`."""
    size = 0
    while not select.select([ends], [], [], silence_s)[0]:
        former, size = size, os.fstat(shared.fileno()).st_size
        if size == former:
            return False
    return True


def _be_child(run: Run, asked: Sequence[Asked], shared: BinaryIO, memory_bytes: int) -> NoReturn:
    """Write results until all are written, or one needs a new child. Ends with the parent, and never returns."""
    status = 1
    _LIBC.prctl(_END_WITH_PARENT, signal.SIGKILL)
    gc.freeze()  # a collection would write to every object, and so copy the parent's memory
    try:
        with suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text(_KILL_FIRST, "ascii")
        with memory_limit(memory_bytes):
            for name, event in asked:
                result = run(name, event)
                encoded = _ENCODER.encode(result)
                shared.write(_HEAD.pack(len(encoded), time.monotonic_ns()) + encoded)
                if result.reason == NO_MEMORY:
                    break
        status = 0
    finally:
        os._exit(status)


def _read(written: bytes, began_ns: int) -> tuple[list[ParseResult], int]:
    """Return the results, and the time after the last one."""
    results: list[ParseResult] = []
    at = 0
    with suppress(struct.error, msgspec.DecodeError):  # the last one was not written as a whole
        while at < len(written):
            size, ended_ns = _HEAD.unpack_from(written, at)
            at += _HEAD.size + size
            results.append(_DECODER.decode(written[at - size : at]))
            began_ns = ended_ns
    return results, began_ns


def _verdict(name: str, code: int, took_us: int, *, late: bool) -> ParseResult:
    if late or code == -signal.SIGPROF:
        return ParseResult(EventOutcome.SLOW, took_us, "timeout", f"parser {name} did not return from native code in time")
    how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
    return ParseResult(EventOutcome.DEAD, took_us, KILLED, detail_text(f"parser {name} ended its process: {how}"))
