"""State of BlueZ and its adapters, the reason why the gateway cannot scan, and the changes of it that are logged. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

GRACE_S = 5.0
"""A restart of bluetoothd takes a moment, and then another one without an adapter. That is not worth a warning."""


class RadioPhase(StrEnum):
    """Phase of the radio (see `supervisor`)."""

    NO_BUS = "no bus"
    NO_DAEMON = "no daemon"
    NO_ADAPTER = "no adapter"
    OFF = "off"
    STARTING = "starting"
    SCANNING = "scanning"
    PAUSED = "paused"
    WAITING = "waiting"

    @property
    def can_connect(self) -> bool:
        """Return True if the radio can connect to a device."""
        return self in (RadioPhase.SCANNING, RadioPhase.PAUSED)


class Adapters:
    """Adapters by D-Bus path. `unplugged` and `switched_off` count the one in use, without the gateway's own power cycles."""

    def __init__(self, wanted: str | None) -> None:
        self.unplugged = 0
        self.switched_off = 0
        self._wanted = wanted
        self._found: dict[str, dict[str, Any]] = {}
        self._used: str | None = None
        self._going_off: set[str] = set()
        self._monitors: set[str] = set()

    def replace(self, adapters: dict[str, dict[str, Any]], monitors: Iterable[str]) -> None:
        """Replace all adapters. `monitors`: paths of those for which BlueZ offers passive scans."""
        self._found, self._monitors = adapters, set(monitors)

    def offers_monitors(self, path: str) -> None:
        """Note that BlueZ offers passive scans by an adapter."""
        self._monitors.add(path)

    def added(self, path: str, properties: dict[str, Any]) -> None:
        """Add an adapter that was plugged in."""
        self._found[path] = properties

    def removed(self, path: str) -> None:
        """Remove an adapter that was unplugged."""
        self.unplugged += path == self.chosen
        self._found.pop(path, None)
        self._monitors.discard(path)
        self._going_off.discard(path)

    def changed(self, path: str, properties: dict[str, Any]) -> None:
        """Update the changed properties of an adapter."""
        if path not in self._found:
            return
        powered = properties.get("Powered")
        if powered is False and path == self.chosen:
            self.switched_off += path not in self._going_off
        if powered is not None:
            self._going_off.discard(path)
        self._found[path].update(properties)

    def going_off(self, path: str) -> None:
        """Do not count the next power-off: the gateway does it. BlueZ may signal the change after it answers the call."""
        self._going_off.add(path)

    def back_on(self, path: str) -> None:
        """End `going_off`, after the gateway has switched the adapter on or failed to."""
        self._going_off.discard(path)

    def clear(self) -> None:
        """Forget all adapters."""
        self._found = {}
        self._monitors.clear()
        self._going_off.clear()

    @property
    def chosen(self) -> str | None:
        """Path of the adapter in use. It stays in use while it is on; else the first that is on, else the first."""
        fitting = [path for path, properties in sorted(self._found.items()) if self._fits(path, properties)]
        powered = [path for path in fitting if self._found[path].get("Powered")]
        if self._used not in powered:
            self._used = next(iter([*powered, *fitting]), None)
        return self._used

    def state(self, path: str) -> tuple[bool, bool, bool]:
        """Return whether the adapter is on, scans (for any program), and is blocked by rfkill, as BlueZ since 5.68 reports."""
        found = self._found[path]
        return bool(found.get("Powered")), bool(found.get("Discovering", True)), found.get("PowerState") == "off-blocked"

    def may_monitor(self, path: str) -> bool:
        """Return True if BlueZ offers passive scans by the adapter."""
        return path in self._monitors

    def _fits(self, path: str, properties: dict[str, Any]) -> bool:
        names = (path.rpartition("/")[2].upper(), str(properties.get("Address", "")).upper())
        return self._wanted is None or self._wanted.upper() in names


@dataclass(frozen=True, slots=True)
class BluezState:
    """State of BlueZ. `why`: the reason why the bus is unreachable. `daemon`: the unique bus name of the owner of `org.bluez`.

    `adapter`: the one in use. `unplugged` and `switched_off`: counts, so short absences show. `blocked`: `soft` or `hard`.
    `monitors`: BlueZ offers passive scans (`org.bluez.AdvertisementMonitorManager1`).
    """

    why: str | None = None
    daemon: str | None = None
    adapter: str | None = None
    powered: bool = False
    unplugged: int = 0
    switched_off: int = 0
    discovering: bool = True
    blocked: str | None = None
    monitors: bool = False

    @property
    def phase(self) -> RadioPhase:
        """The phase that this state allows; `STARTING` if a scanner can be started."""
        if self.why is not None:
            return RadioPhase.NO_BUS
        if self.daemon is None:
            return RadioPhase.NO_DAEMON
        if self.adapter is None:
            return RadioPhase.NO_ADAPTER
        return RadioPhase.STARTING if self.powered else RadioPhase.OFF


def problem_of(bluez: BluezState, wanted: str | None) -> str:
    """Return the reason why the gateway cannot scan, and its remedy, in one line. `wanted`: the adapter of the settings."""
    match bluez.phase:
        case RadioPhase.NO_BUS:
            return f"the system bus cannot be reached ({bluez.why}); install and start dbus and bluez"
        case RadioPhase.NO_DAEMON:
            return "bluetoothd does not run; install bluez and start it: systemctl start bluetooth"
        case RadioPhase.NO_ADAPTER:
            return f"there is no Bluetooth adapter{f' {wanted} (ble.adapter)' if wanted else ''}; plug one in"
        case _ if bluez.blocked == "hard":
            return f"the Bluetooth adapter {bluez.adapter} is blocked by a switch of this machine (rfkill); switch it on there"
        case _ if bluez.blocked is not None:
            return f"the Bluetooth adapter {bluez.adapter} is blocked by rfkill; to unblock it: rfkill unblock bluetooth"
        case _:
            return f"the Bluetooth adapter {bluez.adapter} is off; to switch it on: bluetoothctl power on"


def loss_between(before: BluezState, now: BluezState) -> str | None:
    """Return the name in `Steps` of the loss that ended the scanner and all connections, or None if nothing was lost."""
    if before.why is None and now.why is not None:
        return "bus_lost"
    if before.phase in (RadioPhase.NO_BUS, RadioPhase.NO_DAEMON):
        return None
    if now.daemon != before.daemon:
        return "daemon_lost"
    if now.unplugged != before.unplugged:
        return "adapter_lost"
    if now.switched_off != before.switched_off:
        return "powered_off"
    return "adapter_lost" if before.adapter is not None and now.adapter != before.adapter else None


class ProblemLog:
    """Compares the present problem and remedy with the ones logged last.

    `problem` and `action`: the initial ones, not logged. `deadline_s`: when to call `is_due` again although nothing changed.
    `lasted_s`: duration of the last problem that is over.
    """

    def __init__(self, problem: str | None, action: str) -> None:
        self.deadline_s: float | None = None
        self._logged = (problem, action)
        self._held: str | None = None
        self.lasted_s = 0.0
        self._began_s: float | None = None

    def is_due(self, problem: str | None, action: str, now_s: float, *, restarting: bool) -> bool:
        """Return True if the problem must be logged now. `restarting`: it may be over within `GRACE_S`."""
        if problem is None and self._began_s is not None:
            self.lasted_s, self._began_s = now_s - self._began_s, None
        elif problem is not None and self._began_s is None:
            self._began_s = now_s
        if problem is not None and self._logged[0] is None and (restarting or problem == self._held):
            self._held = problem
            self.deadline_s = now_s + GRACE_S if self.deadline_s is None else self.deadline_s
            if now_s < self.deadline_s:
                return False
        held, self._held, self.deadline_s = self._held, None, None
        logged, self._logged = self._logged, (problem, action)
        return logged[0] is not None or held is not None if problem is None else logged != self._logged
