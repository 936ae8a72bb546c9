"""The end of a run of the gateway, and its cause: from notes of the gateway itself, of systemd and of the kernel. Pure.

systemd's note has `$SERVICE_RESULT`, `$EXIT_CODE` and `$EXIT_STATUS` of the service (systemd.exec(5)), which its `ExecStopPost`
writes.
"""

from enum import StrEnum

import msgspec


class EndCause(StrEnum):
    """Cause of an end.

    `MEMORY`, `ERROR`: the gateway left by itself. `OOM`: the kernel killed it for want of memory. `TIMEOUT`: it did not start
    or stop in time. `EXIT`: it ended with an exit status, and noted no cause. `MACHINE`: the machine went down with it.
    """

    STOPPED = "stopped"
    MEMORY = "memory"
    ERROR = "error"
    OOM = "oom-kill"
    WATCHDOG = "watchdog"
    SIGNAL = "signal"
    TIMEOUT = "timeout"
    EXIT = "exit"
    MACHINE = "machine"
    UNKNOWN = "unknown"


class ProcessEnd(msgspec.Struct, frozen=True):
    """One end. `at`: the wall clock (RFC 3339), None if nothing noted it. `text`: a sentence that begins with "it"."""

    at: str | None
    cause: EndCause
    text: str


STOPPED_TEXT = "it was stopped in order"
_TEXTS = {
    EndCause.STOPPED: STOPPED_TEXT,
    EndCause.OOM: "the kernel killed it for want of memory: the service's (MemoryMax), or the machine's",
    EndCause.WATCHDOG: "systemd killed it, because it had not answered for the time of WatchdogSec",
    EndCause.TIMEOUT: "systemd killed it, because it did not start or stop in time",
    EndCause.MACHINE: "the machine went down with it: a power cut, a reset, or a crash of the system",
    EndCause.UNKNOWN: "it was killed or it crashed, and nothing noted why",
}
_RESULTS = {
    "success": EndCause.STOPPED,
    "oom-kill": EndCause.OOM,
    "watchdog": EndCause.WATCHDOG,
    "timeout": EndCause.TIMEOUT,
    "signal": EndCause.SIGNAL,
    "core-dump": EndCause.SIGNAL,
    "exit-code": EndCause.EXIT,
}


class Witness(msgspec.Struct, frozen=True):
    """The facts about the end of a run that are known at the next start.

    `note`: systemd's, "" if there is none. `noted_at`: its time. `same_boot`: the machine has not restarted since.
    `oom_kills`: processes that the kernel killed for want of memory since the run began.
    """

    note: str = ""
    noted_at: str | None = None
    same_boot: bool = True
    oom_kills: int = 0


def end_of(own: ProcessEnd | None, seen: Witness) -> ProcessEnd:
    """Return the end of a run. `own`: the end that the gateway noted itself, before it closed everything."""
    cause, text = _cause(seen)
    if own is None:
        return ProcessEnd(seen.noted_at, cause, text)
    if not seen.note or cause in (EndCause.STOPPED, EndCause.EXIT):
        return own
    if own.cause is EndCause.STOPPED:
        return ProcessEnd(seen.noted_at, cause, f"{text}, while it was being stopped")
    return msgspec.structs.replace(own, text=f"{own.text}; before that was done, {text}")


def _cause(seen: Witness) -> tuple[EndCause, str]:
    result, _, rest = seen.note.partition(" ")
    how, _, status = rest.partition(" ")
    if not result:
        cause = EndCause.UNKNOWN if seen.same_boot else EndCause.MACHINE
        if cause is EndCause.UNKNOWN and seen.oom_kills:
            cause = EndCause.OOM
        return cause, _TEXTS[cause]
    cause = _RESULTS.get(result, EndCause.UNKNOWN)
    if cause is EndCause.SIGNAL and status == "KILL" and seen.same_boot and seen.oom_kills:
        cause = EndCause.OOM  # systemd knows of it only by a memory controller, which Raspberry Pi OS switches off
    if cause is EndCause.SIGNAL:
        return cause, f"it was killed by signal {status}" + (" and crashed" if how == "dumped" else "")
    if cause is EndCause.EXIT:
        return cause, f"it ended with exit status {status}; the journal has the error"
    if cause is EndCause.UNKNOWN:
        return cause, f"it ended; systemd calls it {result} ({how} {status})"
    return cause, _TEXTS[cause]
