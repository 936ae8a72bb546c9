r"""What to do about the radio: pure. It is told what is seen, and says what is to be done, in order.

BlueZ's scanners die without a word: when the adapter is switched off, when bluetoothd is killed, when the bus restarts, when
a dongle is unplugged. So all of that is watched from outside (`seen`), and silence as well (`tick`), against which there is a
ladder.

```
NO_BUS - NO_DAEMON - NO_ADAPTER - OFF      nothing can be done but wait (and switch on)
           \______ STARTING ______/        a scanner is being started
                  SCANNING <-> PAUSED      something is being connected to
                  WAITING                  a scanner did not start: again in a moment
```

Times are seconds of a clock that never jumps.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

from fogline_edge.adapters.ble.counters import Steps
from fogline_edge.adapters.ble.ladder import ACTIONS, Ladder, Rung
from fogline_edge.adapters.ble.world import Phase, World, problem_of

LOOK_AGAIN_S = 10.0
"""How often BlueZ is asked what there is, as long as there is nothing. It tells by itself; but one signal may be lost."""
STOPPED_S = 2.5
"""For so long BlueZ may say that it does not scan, although a scanner runs. BlueZ 5.82 says so for 0.1 s every 10 s."""
_FIRST_RETRY_S = 1.0
_LONGEST_RETRY_S = 30.0


class Effect(StrEnum):
    """What is to be done. `START` is answered by `started` or `failed`.

    `DROP_SCANNER`: stop it, whatever it answers. `RENEW`: forget all that was learnt of the bus, and with it every client.
    `CLOSE_STALE`: end the links of a former run. `LOOK`: ask BlueZ what there is.
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
class Limits:
    """For how long what may last.

    `silence_s`: when a scanner that hears nothing is taken for dead. `power_on_s`: when an adapter that is off is switched
    on, `None` for never. `wanted`: the adapter of the settings, for people.
    """

    silence_s: float = 20.0
    power_on_s: float | None = 5.0
    wanted: str | None = None


@dataclass(slots=True)
class Supervisor:
    """One adapter's.

    `problem`: what is wrong, in one line, for people. `action`: what is done about it. `deadline_s`: when to call `tick`, if
    nothing happens before.
    """

    limits: Limits
    steps: Steps = field(default_factory=Steps)
    phase: Phase = Phase.NO_BUS
    problem: str | None = "not started yet"
    action: str = TRYING_AGAIN
    deadline_s: float | None = None
    _cycled: bool = False
    _world: World = field(default_factory=lambda: World(why="not looked yet"))
    _failures: int = 0
    _in_trouble: bool = False
    _pauses: int = 0
    _heard_s: float = 0.0
    _silent_s: float = 0.0
    _stopped_s: float = inf
    _patience_s: float = STOPPED_S
    _ladder: Ladder = field(init=False)

    def __post_init__(self) -> None:
        self._ladder = Ladder(self.limits.silence_s)

    @property
    def rung(self) -> int:
        """How many rungs of the ladder were taken in a row."""
        return self._ladder.rung

    @property
    def world(self) -> World:
        """What was last seen."""
        return self._world

    @property
    def ready(self) -> bool:
        """Whether something can be connected to."""
        return self.phase in (Phase.SCANNING, Phase.PAUSED)

    # --- what is told

    def seen(self, world: World, now_s: float) -> list[Effect]:
        """BlueZ looks like this now."""
        before, self._world = self._world, world
        self._cycled = self._cycled and not (world.powered and not before.powered)
        if world.discovering != before.discovering:
            self._stopped_s = inf if world.discovering else now_s
        if world == before and self.phase is not Phase.NO_BUS:
            return []
        lost = self._count_loss(before, world)
        if lost:
            self._in_trouble = True
            self._ladder.fall()
        gone = [Effect.DROP_SCANNER, Effect.RENEW] if lost else []
        phase = world.phase
        if phase is Phase.STARTING:
            if self.phase in (Phase.STARTING, Phase.SCANNING, Phase.PAUSED, Phase.WAITING) and not lost:
                return []
            return [*gone, Effect.CLOSE_STALE, *self._start()]
        self.phase, self.problem, self.action = phase, problem_of(world, self.limits.wanted), TRYING_AGAIN
        self.deadline_s = now_s + LOOK_AGAIN_S
        if phase is Phase.OFF:
            power_on_s = _FIRST_RETRY_S if self._cycled else self.limits.power_on_s  # what we switched off, we switch on
            self.deadline_s = None if power_on_s is None else now_s + power_on_s
        return gone

    def started(self, now_s: float) -> list[Effect]:
        """The scanner that was asked for runs."""
        if self.phase is not Phase.STARTING:
            return []
        self.steps.scanners += 1
        self._failures, self._cycled = 0, False
        self.phase, self._heard_s = Phase.SCANNING, now_s
        self._stopped_s = inf if self._world.discovering else now_s
        if self.rung == 0:
            self._silent_s = now_s
            self._is_well()
        if self._pauses:
            return self._pause()
        self._watch()
        return []

    def failed(self, why: str, now_s: float) -> list[Effect]:
        """The scanner that was asked for does not run."""
        if self.phase is not Phase.STARTING:
            return []
        self.steps.start_failures += 1
        self._failures += 1
        self._in_trouble = True
        self.phase, self.problem, self.action = Phase.WAITING, why, TRYING_AGAIN
        retry_s = min(_LONGEST_RETRY_S, _FIRST_RETRY_S * 2 ** min(self._failures - 1, 10))
        self.deadline_s = now_s + retry_s * self._ladder.factor
        return []

    def heard(self, now_s: float) -> None:
        """The scanner heard something."""
        self._heard_s = self._silent_s = now_s
        self._ladder.heard(now_s)
        self._patience_s = STOPPED_S
        self._stopped_s = inf if self._world.discovering else now_s
        if self.rung and self.phase is Phase.SCANNING:
            self._ladder.down()
            self._is_well()

    def near(self, now_s: float) -> None:
        """That was a device that advertises all the time: if it is not heard any more, the radio may be deaf."""
        self._ladder.near(now_s)

    def link_lives(self, device: str, now_s: float, lasts_s: float = 0.0) -> None:
        """A device that is connected said something: whatever the scanner does, the radio works.

        `lasts_s`: for how long that holds, if the device says something less often than a scanner hears something.
        """
        self._ladder.link_lives(device, now_s + max(self.limits.silence_s, lasts_s))

    def link_ended(self, device: str) -> None:
        """It is not connected any more."""
        self._ladder.link_ended(device)

    def missed(self) -> None:
        """A device that is listed has fallen silent. While the scanner hears others, that is the device's own affair."""
        self._ladder.missed()

    def pause(self) -> list[Effect]:
        """Something is being connected to: hear nothing meanwhile."""
        self._pauses += 1
        return self._pause() if self.phase is Phase.SCANNING else []

    def resume(self) -> list[Effect]:
        """It is over."""
        self._pauses -= 1
        return self._start() if self.phase is Phase.PAUSED and not self._pauses else []

    def tick(self, now_s: float) -> list[Effect]:
        """Time has passed."""
        if self.phase is Phase.SCANNING:
            self._watch()  # what was heard has moved the deadline
        if self.deadline_s is None or now_s < self.deadline_s:
            return []
        match self.phase:
            case Phase.NO_DAEMON | Phase.NO_ADAPTER:
                self.deadline_s = now_s + LOOK_AGAIN_S
                return [Effect.LOOK]
            case Phase.OFF:
                self.steps.power_on += 1
                self.deadline_s = now_s + _LONGEST_RETRY_S
                return [Effect.POWER_ON]
            case Phase.SCANNING:
                return self._scan_again() if now_s >= self._stopped_s + self._patience_s else self._silence(now_s)
            case Phase.WAITING:
                return self._climb(now_s)
            case _:
                self.deadline_s = None
                return []

    # --- what is decided

    def _start(self) -> list[Effect]:
        self.phase, self.deadline_s = Phase.STARTING, None
        return [Effect.START]

    def _pause(self) -> list[Effect]:
        self.phase, self.deadline_s = Phase.PAUSED, None
        return [Effect.DROP_SCANNER]

    def _watch(self) -> None:
        """Silence is reckoned from what was heard last."""
        self.deadline_s = min(self._heard_s + self._ladder.period_s, self._stopped_s + self._patience_s)

    def _silence(self, now_s: float) -> list[Effect]:
        self.steps.silences += 1
        self._in_trouble = True
        self.problem = f"nothing was heard for {now_s - self._silent_s:.0f} s"
        return self._climb(now_s)

    def _scan_again(self) -> list[Effect]:
        """BlueZ scans no more. If a new scanner does not change what it says, the next one comes after twice the time."""
        self.steps.scan_stopped += 1
        self._in_trouble = True
        self.action = "starting a new scanner"
        self.problem = "BlueZ stopped scanning, as it does when another program stops its own scan"
        self._patience_s *= 2
        return [Effect.DROP_SCANNER, *self._start()]

    def _is_well(self) -> None:
        self.steps.recovered += self._in_trouble
        self._in_trouble, self.problem, self.action = False, None, TRYING_AGAIN

    def _climb(self, now_s: float) -> list[Effect]:
        rung = self._ladder.climb(now_s, self._failures)
        self.action = ACTIONS[rung]
        self._cycled = self._cycled or rung is Rung.POWER_CYCLE
        setattr(self.steps, rung, getattr(self.steps, rung) + 1)
        if rung is Rung.REPORT:
            self.problem = f"{self.problem}; new scanner, new clients, adapter {self._world.adapter} off and on: nothing helps"
        self._start()
        return _EFFECTS[rung]

    def _count_loss(self, before: World, now: World) -> bool:
        """Whether what the scanner and the links stood on is gone; and what it was."""
        if before.why is None and now.why is not None:
            self.steps.bus_lost += 1
            return True
        if before.phase in (Phase.NO_BUS, Phase.NO_DAEMON):
            return False
        if now.daemon != before.daemon:
            self.steps.daemon_lost += 1
        elif now.unplugged != before.unplugged:
            self.steps.adapter_lost += 1
        elif now.switched_off != before.switched_off:
            self.steps.powered_off += 1
        elif before.adapter is not None and now.adapter != before.adapter:
            self.steps.adapter_lost += 1
        else:
            return False
        return True
