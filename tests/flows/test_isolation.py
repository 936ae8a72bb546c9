"""Parsers that end or block their process: without Spark, in children of this one."""

import ctypes
import faulthandler
import hashlib
import os
import select
import signal
from collections.abc import Callable, Iterator

import pytest

from fogline.event import Event
from fogline_cloud.flows.parsers import Parser, Reading
from fogline_cloud.flows.sandbox.careful_runner import CarefulRunner
from fogline_cloud.flows.sandbox.guard import Guard
from fogline_cloud.flows.sandbox.isolation import Isolation
from fogline_cloud.flows.sandbox.parser_runner import ParserRunner
from fogline_cloud.flows.sandbox.time_limit import TimeLimit
from fogline_cloud.flows.tables.schema import EventOutcome

MakeEvent = Callable[..., Event]
MEMORY = 256 << 20
PATIENT_S = 60.0
"""Time by the clock that no parser exceeds here, unless it waits for ever. Each other limit is one of CPU time."""
BAD: dict[bytes, Callable[[], object]] = {
    b"kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    b"segfault": lambda: (faulthandler.disable(), ctypes.string_at(0)),  # the crash is meant: no traceback
    b"exit": lambda: os._exit(0),
    b"endless C": lambda: hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9),
    b"8 GB": lambda: bytearray(8 << 30),
    b"endless": lambda: [None for _ in iter(int, 1)],
    b"error": lambda: 1 // 0,
}
EXPECTED = {
    b"kill": ("dead", "killed"),
    b"segfault": ("dead", "killed"),
    b"exit": ("dead", "killed"),
    b"endless C": ("slow", "timeout"),
    b"8 GB": ("dead", "memory"),
    b"endless": ("slow", "timeout"),
    b"error": ("dead", "parser-error"),
}


def parser(event: Event) -> list[Reading]:
    if event.data in BAD:
        BAD[event.data]()
    return [Reading("size", float(len(event.data)))]


def isolation_of(parsers: dict[str, Parser], limit: TimeLimit) -> Isolation:
    guard = Guard(limit.limit_s, MEMORY)
    guard.clock_s = PATIENT_S
    return Isolation(ParserRunner(parsers, limit, guard.watch).run, guard)


@pytest.fixture
def limit() -> Iterator[TimeLimit]:
    with TimeLimit(0.05) as made:
        yield made


def test_each_bad_event_gets_its_outcome_and_all_others_are_parsed(make_event: MakeEvent, limit: TimeLimit) -> None:
    """F4: bad events between good ones, and two of them side by side at either end."""
    isolation = isolation_of({"p": parser}, limit)
    bodies = [b"kill", b"exit", b"a", *(body for bad in EXPECTED for body in (bad, b"bb")), b"kill", b"segfault"]
    events = [("p", make_event(body, device=f"d{number}")) for number, body in enumerate(bodies)]
    found = [(each.outcome.value, each.reason) for each in isolation.results(events)]
    assert found == [EXPECTED.get(body, ("ok", None)) for body in bodies]
    assert isolation.killers == {"p"}


def test_a_native_call_that_waits_for_ever_is_ended(make_event: MakeEvent, limit: TimeLimit) -> None:
    libc = ctypes.PyDLL(None)  # it keeps Python's lock
    ends, pipe = os.pipe()

    def waiting(event: Event) -> list[Reading]:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
        libc.read(ends, ctypes.create_string_buffer(1), 1)
        return []

    guard = Guard(limit.limit_s, MEMORY)
    guard.clock_s = 0.3
    results = Isolation(ParserRunner({"p": waiting, "q": parser}, limit, guard.watch).run, guard).results(
        [("p", make_event()), ("q", make_event())]
    )
    found = []
    for each in results:
        found.append((each.outcome, each.reason))
        guard.clock_s = PATIENT_S
    assert found == [(EventOutcome.SLOW, "timeout"), (EventOutcome.OK, None)]
    os.close(ends)
    os.close(pipe)


def test_a_child_ends_when_its_worker_is_killed(make_event: MakeEvent, limit: TimeLimit) -> None:
    isolation = isolation_of({"p": lambda _: [Reading("m", text="x" * 1000)]}, limit)
    events = [("p", make_event())] * 10_000  # more than a socket holds
    ends, held = os.pipe()
    worker = os.fork()
    if worker == 0:
        try:
            next(isolation.results(events))
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    os.close(held)  # the worker and its child hold it too, until they end
    assert os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) == -signal.SIGKILL
    assert select.select([ends], [], [], 60)[0], "the child did not end within 60 s"
    assert os.read(ends, 1) == b""
    os.close(ends)


def test_memory_leak_of_a_parser_costs_no_other_event(make_event: MakeEvent) -> None:
    """In this process the limit is met by a later event than the one that took the memory; a child judges them."""
    taken: list[bytearray] = []

    def leaking(event: Event) -> list[Reading]:
        taken.append(bytearray(b"x") * (60 << 20))
        return []

    with TimeLimit(PATIENT_S) as patient:
        results = CarefulRunner({"p": leaking}, patient, MEMORY).results([("p", make_event()) for _ in range(8)])
    assert [result.outcome for result in results] == [EventOutcome.OK] * 8
    assert len(taken) < 8


def test_a_parser_may_ask_for_a_child(make_event: MakeEvent) -> None:
    def where(event: Event) -> list[Reading]:
        return [Reading("process", float(os.getpid()))]

    def asking(event: Event) -> list[Reading]:
        return where(event)

    asking.isolated = True  # type: ignore[attr-defined]
    with TimeLimit(PATIENT_S) as patient:
        runner = CarefulRunner({"here": where, "there": asking, "suspect": where}, patient, MEMORY, suspects={"suspect"})
        results = runner.results([(name, make_event()) for name in ("there", "here", "suspect")])
    there, here, suspect = (result.readings[0][2] for result in results)
    assert here == os.getpid()
    assert there == suspect != here
