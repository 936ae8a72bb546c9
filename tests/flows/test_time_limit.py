import signal
import threading
import time
from collections.abc import Iterator

import pytest

from fogline_cloud.flows.sandbox.time_limit import Overrun, TimeLimit


def test_a_loop_that_never_ends_is_ended() -> None:
    def endless() -> None:
        while True:
            pass

    with TimeLimit(0.02) as limit, pytest.raises(Overrun):
        limit.call(endless)


def test_a_call_that_waits_for_ever_is_ended() -> None:
    with TimeLimit(0.02) as limit, pytest.raises(Overrun):
        limit.call(threading.Event().wait)


def test_a_call_that_gets_no_cpu_for_a_while_is_not_ended() -> None:
    with TimeLimit(0.02) as limit:
        assert limit.call(lambda: threading.Event().wait(0.1)) is False


def test_a_call_that_swallows_the_alarm_gets_it_again() -> None:
    met = 0

    def stubborn() -> None:
        nonlocal met
        while True:
            try:
                while True:
                    pass
            except BaseException:
                met += 1
                if met == 3:
                    raise

    with TimeLimit(0.02) as limit, pytest.raises(Overrun):
        limit.call(stubborn)
    assert met == 3


def test_a_generator_is_ended_where_it_is_read() -> None:
    def endless() -> Iterator[int]:
        yield 1
        while True:
            pass

    with TimeLimit(0.02) as limit, pytest.raises(Overrun):
        limit.call(lambda: list(endless()))


def test_results_and_errors_reach_the_caller() -> None:
    def wrong() -> None:
        raise LookupError("x")

    with TimeLimit(60) as limit:
        assert limit.call(lambda: 5) == 5
        with pytest.raises(LookupError):
            limit.call(wrong)


def test_timer_and_signal_handler_are_restored() -> None:
    former = signal.getsignal(signal.SIGALRM)
    with TimeLimit(60) as limit:
        with pytest.raises(RuntimeError):
            limit.call(lambda: (_ for _ in ()).throw(RuntimeError()).__next__())
        limit.rest()
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
        limit.call(lambda: None)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) is former


def test_each_call_has_the_limit_anew_and_a_share_of_it_if_asked() -> None:
    def busy(seconds: float) -> None:
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            pass

    with TimeLimit(0.2) as limit:
        for _ in range(4):
            limit.call(lambda: busy(0.15))
        with pytest.raises(Overrun):
            limit.call(lambda: busy(0.15), 0.1)
        limit.call(lambda: busy(0.15))


def test_an_alarm_outside_a_call_does_nothing() -> None:
    with TimeLimit(60):
        signal.raise_signal(signal.SIGALRM)


def test_a_limit_outside_the_main_thread_is_refused() -> None:
    refused: list[BaseException] = []

    def enter() -> None:
        try:
            TimeLimit(1).__enter__()
        except RuntimeError as error:
            refused.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join(60)
    assert len(refused) == 1
