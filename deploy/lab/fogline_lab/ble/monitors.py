"""`org.bluez.AdvertisementMonitorManager1` of the stand-in: passive scans for the monitors that clients register.

A client registers a path, and then exports an `AdvertisementMonitor1` at or below it. BlueZ reads its patterns from the signal
InterfacesAdded, and calls `Activate`, or `Release` if the kernel refuses the monitor. An advertisement matches as in BlueZ 5.72
and newer: service data are compared without their UUID.
"""

from collections.abc import Iterable

from dbus_fast import Message, MessageFlag, Variant

from fogline_lab.ble.objects import BLUEZ_ERROR, HCI, DBusFailure, Objects

MANAGER = "org.bluez.AdvertisementMonitorManager1"
MONITOR = "org.bluez.AdvertisementMonitor1"
MAX_PATTERNS = 16
_SERVICE_DATA_16 = 0x16
_Pattern = tuple[int, int, bytes]


class Monitors:
    """Monitors by owner and path, each with its patterns. `refused`: the kernel refuses every monitor (Linux before 5.10).

    `once`: the controller reports each device once only, as some do in passive scans. `offered`: bluetoothd is experimental.
    """

    def __init__(self, objects: Objects) -> None:
        self.offered = False
        self.refused = False
        self.once = False
        self._objects = objects
        self._registered: set[tuple[str, str]] = set()
        self._active: dict[tuple[str, str], list[_Pattern]] = {}
        self._reported: set[str] = set()

    @property
    def scanning(self) -> bool:
        """True while any monitor is active."""
        return bool(self._active)

    def add_manager(self) -> None:
        """Publish the interface, if it is offered."""
        if self.offered:
            properties = {"SupportedMonitorTypes": Variant("as", ["or_patterns"]), "SupportedFeatures": Variant("as", [])}
            self._objects.add(HCI, MANAGER, properties)

    def call(self, member: str, sender: str, path: str) -> None:
        """Perform a method of the interface. Raises `DBusFailure`."""
        if not self.offered:
            raise DBusFailure("org.freedesktop.DBus.Error.UnknownMethod", f"Method {member} doesn't exist")
        if member == "RegisterMonitor":
            self._registered.add((sender, path))
            self._reported.clear()
        elif (sender, path) in self._registered:
            self._registered.discard((sender, path))
            self._active.pop((sender, path), None)
        else:
            raise DBusFailure(BLUEZ_ERROR + "DoesNotExist", "Does Not Exist")

    def exported(self, sender: str, path: str, interfaces: dict[str, dict[str, Variant]]) -> None:
        """Activate the monitor that a client has exported, if the client has registered its path."""
        roots = [root for owner, root in self._registered if owner == sender and path.startswith(root)]
        if MONITOR not in interfaces or not roots:
            return
        patterns = [(at, kind, bytes(data)) for at, kind, data in interfaces[MONITOR]["Patterns"].value]
        if self.refused or not 0 < len(patterns) <= MAX_PATTERNS:
            self._tell(sender, path, "Release")
            return
        self._active[sender, roots[0]] = patterns
        self._tell(sender, path, "Activate")

    def left(self, owner: str) -> None:
        """Remove the monitors of a client that left the bus."""
        self._registered = {each for each in self._registered if each[0] != owner}
        self._active = {key: patterns for key, patterns in self._active.items() if key[0] != owner}

    def clear(self) -> None:
        """Remove all monitors: the adapter is off or gone."""
        self._registered.clear()
        self._active.clear()

    def reports(self, address: str, data: bytes) -> bool:
        """Return True if BlueZ takes this advertisement of a passive scan."""
        if self.once and address in self._reported:
            return False
        wanted = [pattern for patterns in self._active.values() for pattern in patterns]
        if not any(_matches(pattern, kind, body) for kind, body in _structures(data) for pattern in wanted):
            return False
        self._reported.add(address)
        return True

    def _tell(self, owner: str, path: str, member: str) -> None:
        self._objects.send(Message(owner, path, MONITOR, member, flags=MessageFlag.NO_REPLY_EXPECTED))


def _structures(data: bytes) -> Iterable[tuple[int, bytes]]:
    while len(data) > 1 and data[0]:
        kind, body, data = data[1], data[2 : data[0] + 1], data[data[0] + 1 :]
        yield kind, body[2:] if kind == _SERVICE_DATA_16 else body


def _matches(pattern: _Pattern, kind: int, body: bytes) -> bool:
    at, wanted, data = pattern
    return kind == wanted and body[at : at + len(data)] == data
