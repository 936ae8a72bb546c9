"""A tree of D-Bus objects with properties: `org.freedesktop.DBus.ObjectManager` and `Properties`, and nothing else."""

from collections.abc import Iterable
from typing import Any

from dbus_fast import BusType, Message, MessageType, NameFlag, Variant
from dbus_fast.aio import MessageBus

OBJECT_MANAGER = "org.freedesktop.DBus.ObjectManager"
PROPERTIES = "org.freedesktop.DBus.Properties"
HCI = "/org/bluez/hci0"
BLUEZ_ERROR = "org.bluez.Error."
_BUS = "org.freedesktop.DBus"


class DBusFailure(Exception):
    """Error reply to a call."""

    def __init__(self, name: str, text: str = "") -> None:
        super().__init__(name, text)
        self.name = name
        self.text = text


class Objects:
    """Interfaces and properties by path. While `mute`, no signal is sent."""

    def __init__(self, address: str, name: str) -> None:
        self.tree: dict[str, dict[str, dict[str, Variant]]] = {}
        self.mute = False
        self._address = address
        self._name = name
        self._bus: MessageBus | None = None

    async def open(self, handler: Any) -> None:
        """Connect, own the name, and subscribe to clients that leave the bus or export objects."""
        self._bus = await MessageBus(bus_address=self._address, bus_type=BusType.SYSTEM).connect()
        self._bus.add_message_handler(handler)
        await self._bus.request_name(self._name, NameFlag.DO_NOT_QUEUE)
        for member in ("NameOwnerChanged", "InterfacesAdded"):
            match = f"type='signal',member='{member}'"
            await self._bus.call(Message(_BUS, "/org/freedesktop/DBus", _BUS, "AddMatch", signature="s", body=[match]))

    def close(self) -> None:
        """Leave the bus without signals."""
        self.tree.clear()
        if self._bus is not None:
            self._bus.disconnect()
            self._bus = None

    def send(self, message: Message) -> None:
        """Send a message if the bus is connected."""
        if self._bus is not None and self._bus.connected:
            self._bus.send(message)

    def signal(self, path: str, interface: str, member: str, signature: str, body: list[Any]) -> None:
        """Send a signal to all clients."""
        if not self.mute:
            kind = MessageType.SIGNAL
            self.send(Message(message_type=kind, path=path, interface=interface, member=member, signature=signature, body=body))

    def add(self, path: str, interface: str, properties: dict[str, Variant]) -> None:
        """Add an interface of an object."""
        self.tree.setdefault(path, {})[interface] = properties
        self.signal("/", OBJECT_MANAGER, "InterfacesAdded", "oa{sa{sv}}", [path, {interface: properties}])

    def remove(self, path: str) -> None:
        """Remove an object and all below it."""
        for each in sorted((each for each in self.tree if each == path or each.startswith(f"{path}/")), reverse=True):
            self.signal("/", OBJECT_MANAGER, "InterfacesRemoved", "oas", [each, list(self.tree.pop(each))])

    def change(self, path: str, interface: str, changed: dict[str, Variant], gone: Iterable[str] = ()) -> None:
        """Change properties of an object."""
        current = self.tree.get(path, {}).get(interface)
        if current is not None:
            current.update(changed)
            for name in gone:
                current.pop(name, None)
            self.signal(path, PROPERTIES, "PropertiesChanged", "sa{sv}as", [interface, changed, list(gone)])

    def get(self, path: str, interface: str, name: str) -> Any:
        """Return the value of a property. Raises `DBusFailure` if the object does not exist."""
        try:
            return self.tree[path][interface][name].value
        except KeyError:
            raise DBusFailure("org.freedesktop.DBus.Error.UnknownObject", f"{path} has no {name}") from None
