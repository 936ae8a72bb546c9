"""Runs parsers in a forked child process, so that one that kills its process costs one event only.

The child has every event in its memory by the fork, and replies with one result after the other. Before each event it notes its
number in shared memory. If it dies, or is silent for too long, that event is the cause, and a new child goes on with the next.
"""

import gc
import mmap
import os
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NoReturn

import msgspec

from fogline.event import Event
from fogline_cloud.flows.sandbox.guard import Guard
from fogline_cloud.flows.sandbox.parser_runner import KILLED, NO_MEMORY, ParseResult, detail_text
from fogline_cloud.flows.tables.schema import EventOutcome

_LENGTH = struct.Struct("!I")
_BEGUN = struct.Struct("!Q")  # number of events that the child has begun, in memory that both share
_FLUSH_S = 0.1  # the child buffers results for this time, so that it is silent for one event only
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(ParseResult)
_KILL_FIRST = "1000"  # the kernel's out-of-memory killer takes the child, not the worker or the JVM

Asked = tuple[str, Event]
"""A parser's name, and the event to parse."""


class Isolation:
    """Runs parsers in children of this process. `run`: runs one parser, in the child. `guard`: limits the child.

    `run` must call `guard.watch`. This process must not have entered `guard`.
    """

    def __init__(self, run: Callable[[str, Event], ParseResult], guard: Guard) -> None:
        self.killers: set[str] = set()  # parsers that ended a child
        self._run = run
        self._guard = guard

    def results(self, asked: Sequence[Asked]) -> Iterator[ParseResult]:
        """Yield the result of every event. Reason `killed`: the parser ended its process."""
        done = 0
        while done < len(asked):
            for result in self._one_child(asked[done:]):
                done += 1
                yield result

    def _one_child(self, asked: Sequence[Asked]) -> Iterator[ParseResult]:
        """Yield results until the child ends, at least one."""
        mine, its = socket.socketpair()
        with mmap.mmap(-1, _BEGUN.size) as shared:
            child = os.fork()
            if child == 0:
                mine.close()  # so that the child ends when this process is gone
                self._be_child(asked, its, shared)
            its.close()
            mine.settimeout(self._guard.clock_s)
            count, began_s, late = 0, time.monotonic(), False
            try:
                with mine, mine.makefile("rb") as replies:
                    while (result := _read(replies)) is not None:
                        count, began_s = count + 1, time.monotonic()
                        yield result
            except TimeoutError:
                late = True
                os.kill(child, signal.SIGKILL)
            except BaseException:  # cancelled or interrupted too: no child stays
                os.kill(child, signal.SIGKILL)
                raise
            finally:
                _, status = os.waitpid(child, 0)
            (begun,) = _BEGUN.unpack_from(shared)
        code = os.waitstatus_to_exitcode(status)
        if count < len(asked) and (code != 0 or begun > count or count == 0):
            culprit = max(begun - 1, count)
            yield from self.results(asked[count:culprit])  # their results ended with the child
            yield self._verdict(asked[culprit][0], code, time.monotonic() - began_s, late=late)

    def _be_child(self, asked: Sequence[Asked], parent: socket.socket, shared: mmap.mmap) -> NoReturn:
        """Write results until all are written, or one needs a new child. Never returns."""
        status = 1
        gc.freeze()  # a collection would write to every object, and so copy the parent's memory
        try:
            with suppress(OSError):
                Path("/proc/self/oom_score_adj").write_text(_KILL_FIRST, "ascii")
            with self._guard, parent.makefile("wb") as pipe:
                flushed_s = time.monotonic()
                for number, (name, event) in enumerate(asked, 1):
                    _BEGUN.pack_into(shared, 0, number)
                    result = self._run(name, event)
                    encoded = _ENCODER.encode(result)
                    pipe.write(_LENGTH.pack(len(encoded)) + encoded)
                    if time.monotonic() - flushed_s > _FLUSH_S:
                        pipe.flush()
                        flushed_s = time.monotonic()
                    if result.reason == NO_MEMORY:
                        break  # the next event gets the memory that this one has used up
            status = 0
        finally:
            os._exit(status)

    def _verdict(self, name: str, code: int, took_s: float, *, late: bool) -> ParseResult:
        self.killers.add(name)
        took_us = int(took_s * 1e6)
        if late or code == -signal.SIGPROF:
            return ParseResult(EventOutcome.SLOW, took_us, "timeout", f"parser {name} did not return from native code in time")
        how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        return ParseResult(EventOutcome.DEAD, took_us, KILLED, detail_text(f"parser {name} ended its process: {how}"))


def _read(pipe: BinaryIO) -> ParseResult | None:
    length = pipe.read(_LENGTH.size)
    if len(length) < _LENGTH.size:
        return None
    encoded = pipe.read(_LENGTH.unpack(length)[0])
    with suppress(msgspec.DecodeError):
        return _DECODER.decode(encoded)
    return None
