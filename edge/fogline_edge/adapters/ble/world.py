"""BlueZ as it is seen from outside, and what keeps the gateway from scanning. Pure."""

from dataclasses import dataclass
from enum import StrEnum


class Phase(StrEnum):
    """Where the radio is."""

    NO_BUS = "no bus"
    NO_DAEMON = "no daemon"
    NO_ADAPTER = "no adapter"
    OFF = "off"
    STARTING = "starting"
    SCANNING = "scanning"
    PAUSED = "paused"
    WAITING = "waiting"


@dataclass(frozen=True, slots=True)
class World:
    """What is seen of BlueZ. `why`: why the bus cannot be reached. `daemon`: the unique name of who owns `org.bluez`.

    `adapter`: the one that is used (`hci0`), if it is there. `unplugged`, `switched_off`: how often it was, so that it is not
    missed however soon it is back. `discovering`: BlueZ says that the adapter scans. `blocked`: by
    rfkill, `soft` or `hard`.
    """

    why: str | None = None
    daemon: str | None = None
    adapter: str | None = None
    powered: bool = False
    unplugged: int = 0
    switched_off: int = 0
    discovering: bool = True
    blocked: str | None = None

    @property
    def phase(self) -> Phase:
        """How far one gets with this."""
        if self.why is not None:
            return Phase.NO_BUS
        if self.daemon is None:
            return Phase.NO_DAEMON
        if self.adapter is None:
            return Phase.NO_ADAPTER
        return Phase.STARTING if self.powered else Phase.OFF


def problem_of(world: World, wanted: str | None) -> str:
    """Why there is nothing to scan with, and what to do about it, in one line. `wanted`: the adapter of the settings."""
    match world.phase:
        case Phase.NO_BUS:
            return f"the system bus cannot be reached ({world.why}); install and start dbus and bluez"
        case Phase.NO_DAEMON:
            return "bluetoothd does not run; install bluez and start it: systemctl start bluetooth"
        case Phase.NO_ADAPTER:
            return f"there is no Bluetooth adapter{f' {wanted} (ble.adapter)' if wanted else ''}; plug one in"
        case _ if world.blocked == "hard":
            return f"the Bluetooth adapter {world.adapter} is blocked by a switch of this machine (rfkill); switch it on there"
        case _ if world.blocked is not None:
            return f"the Bluetooth adapter {world.adapter} is blocked by rfkill; to unblock it: rfkill unblock bluetooth"
        case _:
            return f"the Bluetooth adapter {world.adapter} is off; to switch it on: bluetoothctl power on"
