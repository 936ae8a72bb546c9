"""The cause of an end, from the notes of gateway, systemd and kernel."""

import pytest

from fogline_edge.machine.process_end import STOPPED_TEXT, EndCause, ProcessEnd, Witness, end_of

AT = "2026-09-21T14:13:20Z"
STOPPED = ProcessEnd("2026-09-21T14:13:19Z", EndCause.STOPPED, STOPPED_TEXT)
GROWN = ProcessEnd("2026-09-21T14:13:19Z", EndCause.MEMORY, "it left by itself: too much memory")


@pytest.mark.parametrize(
    ("note", "cause", "text"),
    [
        ("oom-kill killed KILL", EndCause.OOM, "for want of memory"),
        ("watchdog killed KILL", EndCause.WATCHDOG, "WatchdogSec"),
        ("timeout killed TERM", EndCause.TIMEOUT, "start or stop in time"),
        ("signal killed KILL", EndCause.SIGNAL, "signal KILL"),
        ("core-dump dumped SEGV", EndCause.SIGNAL, "signal SEGV and crashed"),
        ("exit-code exited 1", EndCause.EXIT, "exit status 1"),
        ("success exited 0", EndCause.STOPPED, "stopped in order"),
        ("start-limit-hit exited 1", EndCause.UNKNOWN, "start-limit-hit (exited 1)"),
    ],
)
def test_the_note_of_the_service_names_the_cause(note, cause, text):
    end = end_of(None, Witness(note, AT))
    assert (end.at, end.cause) == (AT, cause)
    assert text in end.text


def test_a_kill_while_the_kernel_had_no_memory_is_an_oom_kill_without_a_memory_controller_too():
    assert end_of(None, Witness("signal killed KILL", AT, oom_kills=1)).cause is EndCause.OOM
    assert end_of(None, Witness("signal killed TERM", AT, oom_kills=1)).cause is EndCause.SIGNAL
    assert end_of(None, Witness(oom_kills=1)).cause is EndCause.OOM


def test_end_without_a_note_is_a_machine_failure_or_unknown():
    assert end_of(None, Witness(same_boot=False)).cause is EndCause.MACHINE
    assert end_of(None, Witness()).cause is EndCause.UNKNOWN


@pytest.mark.parametrize("note", ["", "success exited 0", "exit-code exited 2"])
def test_the_cause_that_the_gateway_notes_itself_is_kept(note):
    assert end_of(STOPPED, Witness(note, AT)) == STOPPED
    assert end_of(GROWN, Witness(note, AT)) == GROWN


def test_a_gateway_that_is_killed_while_it_ends_has_both_causes():
    end = end_of(STOPPED, Witness("timeout killed KILL", AT))
    assert end.cause is EndCause.TIMEOUT
    end = end_of(GROWN, Witness("oom-kill killed KILL", AT))
    assert end.cause is EndCause.MEMORY
    assert "too much memory; before that was done, the kernel killed it" in end.text
