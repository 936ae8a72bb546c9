r"""Decides about the radio. Pure: BlueZ's state, advertisements and monotonic time come in; effects come out, in order.

BlueZ's scanners stop without an error when the adapter is switched off, when bluetoothd is killed, when the bus restarts, or
when a dongle is unplugged. So the supervisor watches all of these from outside (`observe`), and silence as well (`tick`). The
ladder says what to try against silence.

```
NO_BUS - NO_DAEMON - NO_ADAPTER - OFF      the gateway can only wait (and switch the adapter on)
           \______ STARTING ______/        a scanner is being started
                  SCANNING <-> PAUSED      a device is being connected to
                  WAITING                  a scanner did not start; the next attempt follows
```
"""

from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

from fogline_edge.adapters.ble.counters import ScanMeter, Steps
from fogline_edge.adapters.ble.supervision.bluez_state import BluezState, RadioPhase, loss_between, problem_of
from fogline_edge.adapters.ble.supervision.ladder import ACTIONS, Ladder, Rung
from fogline_edge.adapters.ble.supervision.scan_mode import SILENCES, Scan, ScanChoice

LOOK_AGAIN_S = 10.0
"""Interval of asking BlueZ for its adapters while there is none to use. BlueZ signals changes, but a signal may be lost."""
STOPPED_S = 2.5
"""Longest time that BlueZ may report `Discovering` false under a running scanner. BlueZ 5.82 does so for 0.1 s every 10 s."""
_FIRST_RETRY_S = 1.0
_LONGEST_RETRY_S = 30.0


class Effect(StrEnum):
    """An action for the radio. `started` or `failed` reports the result of `START`.

    `DROP_SCANNER`: stop the scanner, whatever it answers. `RENEW`: make bleak forget the bus, which disconnects all clients.
    `CLOSE_STALE`: end the connections of an earlier run. `LOOK`: ask BlueZ for its adapters.
    """

    DROP_SCANNER = "drop scanner"
    RENEW = "renew"
    CLOSE_STALE = "close stale"
    START = "start"
    LOOK = "look"
    POWER_ON = "power on"
    POWER_CYCLE = "power cycle"


TRYING_AGAIN = "trying again"
_EFFECTS = {
    Rung.NEW_SCANNER: [Effect.DROP_SCANNER, Effect.START],
    Rung.NEW_CLIENTS: [Effect.DROP_SCANNER, Effect.RENEW, Effect.CLOSE_STALE, Effect.START],
    Rung.POWER_CYCLE: [Effect.DROP_SCANNER, Effect.RENEW, Effect.POWER_CYCLE, Effect.CLOSE_STALE, Effect.START],
    Rung.REPORT: [Effect.DROP_SCANNER, Effect.START],
}


@dataclass(frozen=True, slots=True)
class RadioTimeouts:
    """Limits of the settings. A scanner is dead after `silence_s`. An adapter is switched on after `power_on_s` (or never)."""

    silence_s: float = 20.0
    power_on_s: float | None = 5.0
    wanted: str | None = None


@dataclass(slots=True)
class Supervisor:
    """Supervisor of one adapter. `problem`, `action`: the fault and its remedy, for users. `deadline_s`: of the next `tick`.

    `choice`: chooses between active and passive scans. `scan`: the present or next one.
    """

    limits: RadioTimeouts
    choice: ScanChoice = field(default_factory=ScanChoice)
    steps: Steps = field(default_factory=Steps)
    phase: RadioPhase = RadioPhase.NO_BUS
    bluez: BluezState = field(default_factory=lambda: BluezState(why="not looked yet"))
    problem: str | None = "not started yet"
    action: str = TRYING_AGAIN
    deadline_s: float | None = None
    ladder: Ladder = field(init=False)
    scan: Scan = field(default_factory=Scan)
    meter: ScanMeter = field(default_factory=ScanMeter)
    _cycled: bool = False
    _failures: int = 0
    _in_trouble: bool = False
    _pauses: int = 0
    _received_s: float = 0.0
    _silent_s: float = 0.0
    _stopped_s: float = inf
    _patience_s: float = STOPPED_S

    def __post_init__(self) -> None:
        self.ladder = Ladder(self.limits.silence_s)

    def observe(self, bluez: BluezState, now_s: float) -> list[Effect]:
        """Take in the present state of BlueZ."""
        before, self.bluez = self.bluez, bluez
        self._cycled = self._cycled and not (bluez.powered and not before.powered)
        if bluez.discovering != before.discovering:
            self._stopped_s = _stopped_at(self.bluez, self.scan, now_s)
        if bluez == before and self.phase is not RadioPhase.NO_BUS:
            return []
        lost = loss_between(before, bluez)
        if lost is not None:
            setattr(self.steps, lost, getattr(self.steps, lost) + 1)
            self._in_trouble = True
            self.ladder.links_lost()
            self.choice.forget()
        gone = [Effect.DROP_SCANNER, Effect.RENEW] if lost else []
        phase = bluez.phase
        if phase is RadioPhase.STARTING:
            if self.phase in (RadioPhase.STARTING, RadioPhase.SCANNING, RadioPhase.PAUSED, RadioPhase.WAITING) and not lost:
                return []
            return [*gone, Effect.CLOSE_STALE, *self._start()]
        self.phase, self.problem, self.action = phase, problem_of(bluez, self.limits.wanted), TRYING_AGAIN
        self.deadline_s = now_s + LOOK_AGAIN_S
        if phase is RadioPhase.OFF:
            # an adapter that the ladder switched off is always switched on again, even if `power_on` is false
            power_on_s = _FIRST_RETRY_S if self._cycled else self.limits.power_on_s
            self.deadline_s = None if power_on_s is None else now_s + power_on_s
        return gone

    def started(self, now_s: float) -> list[Effect]:
        """The scanner of the last `START` runs. Ignored in every other phase."""
        if self.phase is not RadioPhase.STARTING:
            return []
        self.steps.scanners += 1
        self._failures, self._cycled = 0, False
        self.phase, self._received_s = RadioPhase.SCANNING, now_s
        self._stopped_s = _stopped_at(self.bluez, self.scan, now_s)
        if self.ladder.rung == 0:
            self._silent_s = now_s
            self._recovered()
        if self._pauses:
            return self._pause()
        self._set_scan_deadline()
        return []

    def failed(self, why: str, now_s: float) -> list[Effect]:
        """The scanner of the last `START` does not run. Ignored in every other phase."""
        if self.phase is not RadioPhase.STARTING:
            return []
        if self.scan.passive:
            self.choice.refused(why)
            return self._start()
        self.steps.start_failures += 1
        self._failures += 1
        self._in_trouble = True
        self.phase, self.problem, self.action = RadioPhase.WAITING, why, TRYING_AGAIN
        retry_s = min(_LONGEST_RETRY_S, _FIRST_RETRY_S * 2 ** min(self._failures - 1, 10))
        self.deadline_s = now_s + retry_s * self.ladder.factor
        return []

    def received(self, now_s: float) -> None:
        """The scanner received an advertisement."""
        self._received_s = self._silent_s = now_s
        self.ladder.received(now_s)
        self._patience_s = STOPPED_S
        self._stopped_s = _stopped_at(self.bluez, self.scan, now_s)
        if self.ladder.rung and self.phase is RadioPhase.SCANNING:
            self.choice.received(self.scan)
            self.ladder.reset()
            self._recovered()

    def pause(self) -> list[Effect]:
        """Stop scanning for a connection attempt. Each call needs one `resume`."""
        self._pauses += 1
        return self._pause() if self.phase is RadioPhase.SCANNING else []

    def resume(self) -> list[Effect]:
        """End one pause; scanning goes on after the last one."""
        self._pauses -= 1
        return self._start() if self.phase is RadioPhase.PAUSED and not self._pauses else []

    def tick(self, now_s: float) -> list[Effect]:
        """Act if the deadline has passed."""
        if self.phase is RadioPhase.SCANNING:
            self._set_scan_deadline()  # advertisements since then have moved it
        if self.deadline_s is None or now_s < self.deadline_s:
            return []
        match self.phase:
            case RadioPhase.NO_DAEMON | RadioPhase.NO_ADAPTER:
                self.deadline_s = now_s + LOOK_AGAIN_S
                return [Effect.LOOK]
            case RadioPhase.OFF:
                self.steps.power_on += 1
                self.deadline_s = now_s + _LONGEST_RETRY_S
                return [Effect.POWER_ON]
            case RadioPhase.SCANNING:
                return self._scan_again() if now_s >= self._stopped_s + self._patience_s else self._silence(now_s)
            case RadioPhase.WAITING:
                return self._climb(now_s)
            case _:
                self.deadline_s = None
                return []

    def _start(self) -> list[Effect]:
        self.phase, self.deadline_s = RadioPhase.STARTING, None
        self.scan = self.choice.next(offered=self.bluez.monitors)
        self.meter.scan = {self.scan.reason: 1}
        return [Effect.START]

    def _pause(self) -> list[Effect]:
        self.phase, self.deadline_s = RadioPhase.PAUSED, None
        return [Effect.DROP_SCANNER]

    def _set_scan_deadline(self) -> None:
        period_s = self.ladder.period_s * (SILENCES if self.scan.passive else 1)
        if self.choice.replaces(self.scan, offered=self.bluez.monitors):
            self._stopped_s = -inf  # a scan of the other kind replaces it at once
        self.deadline_s = min(self._received_s + period_s, self._stopped_s + self._patience_s)

    def _silence(self, now_s: float) -> list[Effect]:
        self.steps.silences += 1
        self._in_trouble = True
        self.problem = f"no advertisement was received for {now_s - self._silent_s:.0f} s"
        self.choice.silent(self.scan, now_s - self._silent_s)
        return self._climb(now_s)

    def _scan_again(self) -> list[Effect]:
        """Replace a scanner that BlueZ has stopped. Each one that does not help doubles the time before the next."""
        if not self.choice.replaces(self.scan, offered=self.bluez.monitors):
            self.steps.scan_stopped += 1
            self._in_trouble = True
            self.action = "starting a new scanner"
            self.problem = "BlueZ stopped scanning, as it does when another program stops its own scan"
            self._patience_s *= 2
        return [Effect.DROP_SCANNER, *self._start()]

    def _recovered(self) -> None:
        self.steps.recovered += self._in_trouble
        self._in_trouble, self.problem, self.action = False, None, TRYING_AGAIN

    def _climb(self, now_s: float) -> list[Effect]:
        rung = self.ladder.climb(now_s, self._failures)
        self.action = ACTIONS[rung]
        self._cycled = self._cycled or rung is Rung.POWER_CYCLE
        setattr(self.steps, rung, getattr(self.steps, rung) + 1)
        if rung is Rung.REPORT:
            self.problem = f"{self.problem}; new scanner, new clients, adapter {self.bluez.adapter} off and on: nothing helps"
        self._start()
        return _EFFECTS[rung]


def _stopped_at(bluez: BluezState, scan: Scan, now_s: float) -> float:
    """Return when BlueZ has stopped the scanner, `inf` if it has not. For a passive one, `Discovering` means nothing."""
    return inf if bluez.discovering or scan.passive else now_s
