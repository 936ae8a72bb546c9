"""The present run of the gateway and the ends of the last ones, in `run.json` in the data folder, for `fogline-edge status`.

At its start the gateway asks how the former run ended. Beside its own word there is the note of the service: a line that
`ExecStopPost` of `fogline-edge.service` writes over the file `service-end` in the service's folder.
"""

import contextlib
import logging
import os
import time
from pathlib import Path

import msgspec

from fogline.events.event import rfc3339
from fogline_edge.machine.boot import SYSTEM, Clock
from fogline_edge.machine.fixed_file import overwrite
from fogline_edge.machine.process_end import EndCause, ProcessEnd, Witness, end_of

FILE = "run.json"
NOTE = "service-end"
"""The service overwrites it, so it has room for the note (deploy/packages/debian/fogline-edge.service)."""
KEPT_ENDS = 5
KEPT_JUMPS = 5
_SIZE = 16_384
_NOTE_SIZE = 64
_MAX_TEXT = 500
VMSTAT = Path("/proc/vmstat")

_log = logging.getLogger("fogline.gateway")


class ClockJump(msgspec.Struct, frozen=True):
    """A change of the wall clock that was no passing of time. `at`, `instead_of`: RFC 3339. `by_s`: negative if set back."""

    at: str
    instead_of: str
    by_s: float

    @property
    def sentence(self) -> str:
        """The jump in words."""
        return f"the wall clock was set from {self.instead_of} to {self.at} ({self.by_s:+,.0f} s)"


class ClockState(msgspec.Struct, frozen=True):
    """State of the wall clock. `synced`: it is known to be right. `jumps`: the last ones, the newest last."""

    synced: bool | None = None
    jumps: tuple[ClockJump, ...] = ()


class UplinkNote(msgspec.Struct, frozen=True):
    """Whether a bridge serves the gateway. `since`: RFC 3339. `why`: the reason, if none does."""

    connected: bool
    bridge: str
    since: str
    why: str = ""

    @property
    def sentence(self) -> str:
        """The state in words."""
        if self.connected:
            return f"connected to the bridge at {self.bridge} since {self.since}"
        return f"not connected to a bridge since {self.since}; {self.bridge}: {self.why}"


class RunState(msgspec.Struct, frozen=True):
    """Content of the file. `boot`: id of the boot in which this run began. `oom_kills`: the kernel's count at its begin.

    `own`: the end of this run, as the gateway noted it. `ends`: of former runs, the newest last. `uplink`: None until the
    first attempt to connect has ended.
    """

    started: str
    boot: str
    oom_kills: int = 0
    own: ProcessEnd | None = None
    ends: tuple[ProcessEnd, ...] = ()
    clock: ClockState = ClockState()
    uplink: UplinkNote | None = None


def read_run(folder: Path) -> RunState | None:
    """Return the record, None if there is none. A file that cannot be read counts as missing."""
    try:
        return msgspec.json.decode((folder / FILE).read_bytes(), type=RunState)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def lines_of_run(run: RunState) -> list[str]:
    """Return the record as lines of text: the last end, and before it the last one that was not in order."""
    found = [f"run of {run.started}" + ("" if run.own is None else f": {_line_of(run.own)}")]
    if run.own is None and run.uplink is not None:
        found.append(f"  {run.uplink.sentence}")
    if run.ends:
        last = run.ends[-1]
        found.append(f"  the run before: {_line_of(last)}")
        disorder = next((each for each in reversed(run.ends) if each.cause is not EndCause.STOPPED), last)
        if disorder is not last:
            found.append(f"  an earlier run: {_line_of(disorder)}")
    if run.clock.jumps:
        found.extend(f"  {each.sentence}" for each in run.clock.jumps)
        right = "known" if run.clock.synced else "not known"
        found.append(f"  the wall clock is {right} to be right now; a deadline does not depend on it")
    return found


def _line_of(end: ProcessEnd) -> str:
    return f"{end.text}, at {end.at}" if end.at else end.text


class RunRecord:
    """The record of this run. All methods are called on the event loop.

    `note`: the file of the service's note, by default in the service's folder, or in the data folder without a service.
    """

    def __init__(self, folder: Path, clock: Clock = SYSTEM, *, note: Path | None = None, vmstat: Path = VMSTAT) -> None:
        self._path = folder / FILE
        self._note = note or Path(os.environ.get("STATE_DIRECTORY") or folder) / NOTE
        self._vmstat = vmstat
        self._clock = clock
        now = rfc3339(clock.time_ns())
        former = read_run(folder)
        ends = () if former is None else (*former.ends, self._end_of(former))[-KEPT_ENDS:]
        self.state = RunState(now, clock.beacon().boot_id, self._oom_kills(), ends=ends)
        overwrite(self._note, b"", _NOTE_SIZE)
        self._write()

    def log_last_end(self) -> None:
        """Log how the former run ended, as a warning if that was not in order."""
        if self.state.ends:
            last = self.state.ends[-1]
            level = logging.INFO if last.cause is EndCause.STOPPED else logging.WARNING
            _log.log(level, "the run before this one: %s", _line_of(last), extra={"reason": last.cause.value})

    def leave(self, cause: EndCause, text: str) -> None:
        """Note the end of this run, before everything is closed."""
        printable = "".join(each if each.isprintable() else "?" for each in text[:_MAX_TEXT])
        own = ProcessEnd(rfc3339(self._clock.time_ns()), cause, printable)
        self.state = msgspec.structs.replace(self.state, own=own)
        self._write()

    def note_uplink(self, bridge: str, why: str, *, connected: bool) -> None:
        """Note that a bridge serves the gateway, or why none does. The same state is not written again."""
        former, why = self.state.uplink, "".join(each if each.isprintable() else "?" for each in why[:_MAX_TEXT])
        if former is not None and (former.connected, former.why) == (connected, why):
            return
        # An outage that goes on for another reason keeps its begin.
        begun = former is not None and not former.connected and not connected
        since = former.since if former is not None and begun else rfc3339(self._clock.time_ns())
        self.state = msgspec.structs.replace(self.state, uplink=UplinkNote(connected, bridge, since, why))
        self._write()

    def note_clock(self, jump: ClockJump | None, *, synced: bool) -> None:
        """Note a jump of the wall clock, and whether the clock is known to be right."""
        clock = self.state.clock
        jumps = clock.jumps if jump is None else (*clock.jumps, jump)[-KEPT_JUMPS:]
        changed = ClockState(synced, jumps)
        if changed != clock:
            self.state = msgspec.structs.replace(self.state, clock=changed)
            self._write()

    def _write(self) -> None:
        overwrite(self._path, msgspec.json.encode(self.state), _SIZE)

    def _end_of(self, former: RunState) -> ProcessEnd:
        note, noted_at = "", None
        with contextlib.suppress(OSError):
            note = self._note.read_text("ascii", "replace").strip()[:_NOTE_SIZE]
            noted_at = rfc3339(time.time_ns() if not note else self._note.stat().st_mtime_ns)
        same_boot = former.boot == self._clock.beacon().boot_id
        killed = max(0, self._oom_kills() - former.oom_kills) if same_boot else 0
        return end_of(former.own, Witness(note, noted_at if note else None, same_boot, killed))

    def _oom_kills(self) -> int:
        """Return the number of processes that the kernel has killed for want of memory since it started."""
        try:
            lines = self._vmstat.read_text("ascii").splitlines()
        except OSError:
            return 0
        return next((int(each.split()[1]) for each in lines if each.startswith("oom_kill ")), 0)
