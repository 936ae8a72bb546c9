"""Parsers that end or block their process: without Spark, in children of this one."""

import ctypes
import faulthandler
import hashlib
import os
import select
import signal
import threading
from collections.abc import Callable, Iterator

import pytest

from fogline.events.event import Event
from fogline_cloud.flows.parsers import Parser, Reading
from fogline_cloud.flows.sandbox.task_parsers import TaskParsers
from fogline_cloud.flows.sandbox.time_limit import TimeLimit
from fogline_cloud.flows.tables.schema import EventOutcome

MakeEvent = Callable[..., Event]
MEMORY = 256 << 20
PATIENT_S = 60.0
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


@pytest.fixture
def limit() -> Iterator[TimeLimit]:
    with TimeLimit(0.2) as made:
        yield made


def test_each_bad_event_gets_its_outcome_and_all_others_are_parsed(make_event: MakeEvent, limit: TimeLimit) -> None:
    """F4: bad events between good ones, and two of them side by side at either end."""
    bodies = [b"kill", b"exit", b"a", *(body for bad in EXPECTED for body in (bad, b"bb")), b"kill", b"segfault"]
    events = [("p", make_event(body, device=f"d{number}")) for number, body in enumerate(bodies)]
    parsers = TaskParsers({"p": parser}, limit, MEMORY, {"p"})
    found = [(each.outcome.value, each.reason) for each in parsers.results(events)]
    assert found == [EXPECTED.get(body, ("ok", None)) for body in bodies]
    assert parsers.killers == {"p"}


def wait_natively(event: Event) -> list[Reading]:
    """Wait for ever, with Python's lock, and without alarms."""
    ends, _ = os.pipe()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    ctypes.PyDLL(None).read(ends, ctypes.create_string_buffer(1), 1)
    return []


@pytest.mark.parametrize(
    ("dangerous", "body", "code"),
    [(parser, b"kill", -signal.SIGKILL), (parser, b"endless C", -signal.SIGPROF), (wait_natively, b"", 1)],
)
def test_a_parser_that_never_returns_ends_its_worker(make_event: MakeEvent, dangerous: Parser, body: bytes, code: int) -> None:
    """Spark repeats the task then, with every parser in a child."""
    faulthandler.cancel_dump_traceback_later()  # pytest's own: a fork must not inherit its lock
    worker = os.fork()
    if worker == 0:
        status = 9
        try:
            os.close(2)  # the traceback of the one that waits
            with TimeLimit(0.05) as limit:
                TaskParsers({"p": dangerous}, limit, MEMORY, ()).results([("p", make_event(body))])
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) == code


def test_a_native_call_that_waits_for_ever_is_ended(make_event: MakeEvent) -> None:
    with TimeLimit(0.05) as limit:
        parsers = TaskParsers({"p": wait_natively, "q": parser}, limit, MEMORY, {"p", "q"})
        results = parsers.results([("p", make_event()), ("q", make_event())])
    assert [(each.outcome, each.reason) for each in results] == [(EventOutcome.SLOW, "timeout"), (EventOutcome.OK, None)]


def test_a_child_ends_when_its_worker_is_killed(make_event: MakeEvent) -> None:
    ends, held = os.pipe()
    faulthandler.cancel_dump_traceback_later()  # as above
    worker = os.fork()
    if worker == 0:

        def fatal(event: Event) -> list[Reading]:
            os.kill(os.getppid(), signal.SIGKILL)
            threading.Event().wait()
            return []

        try:
            with TimeLimit(10 * PATIENT_S) as patient:
                TaskParsers({"p": fatal}, patient, MEMORY, {"p"}).results([("p", make_event())])
        finally:
            os._exit(1)
    os.close(held)  # the worker and its child hold it too, until they end
    assert os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) == -signal.SIGKILL
    assert select.select([ends], [], [], 60)[0], "the child did not end within 60 s"
    assert os.read(ends, 1) == b""
    os.close(ends)


@pytest.mark.parametrize("in_child", [(), ("p",)])
def test_memory_leak_of_a_parser_costs_no_other_event(make_event: MakeEvent, in_child: tuple[str, ...]) -> None:
    """The limit is met by a later event than the one that took the memory; a new child judges it."""
    taken: list[bytearray] = []

    def leaking(event: Event) -> list[Reading]:
        taken.append(bytearray(b"x") * (60 << 20))
        return []

    with TimeLimit(PATIENT_S) as patient:
        results = TaskParsers({"p": leaking}, patient, MEMORY, in_child).results([("p", make_event()) for _ in range(8)])
    assert [result.outcome for result in results] == [EventOutcome.OK] * 8
    assert len(taken) < 8


def test_a_parser_may_ask_for_a_child(make_event: MakeEvent) -> None:
    def where(event: Event) -> list[Reading]:
        return [Reading("process", float(os.getpid()))]

    def asking(event: Event) -> list[Reading]:
        return where(event)

    asking.isolated = True  # type: ignore[attr-defined]
    with TimeLimit(PATIENT_S) as patient:
        parsers = TaskParsers({"here": where, "there": asking, "suspect": where}, patient, MEMORY, {"suspect"})
        results = parsers.results([(name, make_event()) for name in ("there", "here", "suspect")])
    there, here, suspect = (result.readings[0][2] for result in results)
    assert here == os.getpid()
    assert there == suspect != here
