"""BlueZ from outside: who owns its name, which adapters there are, whether they are on and scan. bleak watches none of these.

D-Bus: the bus itself (specification, `NameOwnerChanged`), `org.freedesktop.DBus.ObjectManager` and `Properties` of BlueZ
(its `org.bluez.Adapter.5`).
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

from bleak.backends.bluezdbus.manager import get_global_bluez_manager
from dbus_fast import BusType, Message, MessageType, Variant
from dbus_fast.aio import MessageBus
from dbus_fast.errors import AuthError, DBusError, InvalidAddressError

from fogline.errors import Unreachable
from fogline_edge.adapters.ble.adapters import Adapters
from fogline_edge.adapters.ble.rfkill import blocked
from fogline_edge.adapters.ble.world import World

CALL_LIMIT_S = 5.0
"""The longest that a call of BlueZ's may take; a daemon that hangs must not hold up anything."""

_BLUEZ, _ADAPTER = "org.bluez", "org.bluez.Adapter1"
_BUS, _OBJECTS, _PROPERTIES = "org.freedesktop.DBus", "org.freedesktop.DBus.ObjectManager", "org.freedesktop.DBus.Properties"
_MATCHES = (
    f"type='signal',sender='{_BUS}',interface='{_BUS}',member='NameOwnerChanged',arg0='{_BLUEZ}'",
    f"type='signal',sender='{_BLUEZ}',interface='{_OBJECTS}'",
    f"type='signal',sender='{_BLUEZ}',interface='{_PROPERTIES}',arg0='{_ADAPTER}'",
)
_log = logging.getLogger(__name__)


class Bluez:
    """Keeps `world` true while it is open, and calls `changed` whenever it is another.

    `wanted`: the adapter to use, by its name (`hci1`) or address; by default the first that is on.
    `looked`: BlueZ was asked what there is.
    """

    def __init__(self, wanted: str | None, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._bus: MessageBus | None = None
        self._daemon: str | None = None
        self._adapters = Adapters(wanted)
        self._why: str | None = "not connected yet"
        self._signals = 0
        self.looked = False
        self._looking: asyncio.Task[None] | None = None

    @property
    def world(self) -> World:
        """What is seen now."""
        adapters = self._adapters
        path = adapters.chosen
        if path is None:
            return World(self._why, self._daemon, None, unplugged=adapters.unplugged, switched_off=adapters.switched_off)
        name, powered = path.rpartition("/")[2], adapters.powered(path)
        return World(
            self._why,
            self._daemon,
            name,
            powered,
            adapters.unplugged,
            adapters.switched_off,
            adapters.discovering(path),
            None if powered else blocked(name) or ("soft" if adapters.blocked(path) else None),
        )

    async def run(self) -> None:
        """One connection to the bus, until it ends: always with `Unreachable`, or cancelled."""
        bus = MessageBus(bus_type=BusType.SYSTEM)
        try:
            await self._connect(bus)
            self._why = None
            self._changed()
            await bus.wait_for_disconnect()  # type: ignore[no-untyped-call]  # dbus-fast leaves it so
        except (OSError, EOFError, DBusError, AuthError, InvalidAddressError, TimeoutError, Unreachable) as error:
            raise Unreachable(_shown(error)) from None
        else:
            raise Unreachable("the connection to it ended")
        finally:
            self._bus, self._daemon = None, None
            if self._looking is not None:
                self._looking.cancel()
            self._adapters.forget()
            with contextlib.suppress(Exception):  # whatever it answers: it is given up
                bus.disconnect()

    def lost(self, why: str) -> None:
        """The bus is not there, and why."""
        self._why = why
        self._changed()

    async def power(self, adapter: str, *, on: bool) -> None:
        """Switch an adapter on or off. Raises `Unreachable`."""
        path, body = f"/org/bluez/{adapter}", [_ADAPTER, "Powered", Variant("b", on)]
        if not on:
            self._adapters.going_off(path)
        try:
            await self._call(Message(_BLUEZ, path, _PROPERTIES, "Set", signature="ssv", body=body))
        finally:
            if on:
                self._adapters.is_back(path)

    async def _connect(self, bus: MessageBus) -> None:
        async with asyncio.timeout(CALL_LIMIT_S):
            await bus.connect()
        self._bus = bus
        bus.add_message_handler(self._signal)
        for match in _MATCHES:
            await self._call_bus("AddMatch", match)
        with contextlib.suppress(Unreachable):
            (self._daemon,) = await self._call_bus("GetNameOwner", _BLUEZ)
        await self.look()

    async def look(self) -> None:
        """Which adapters there are. Where systemd starts bluetoothd on demand, this is such a demand."""
        signals = -1
        while signals != self._signals:  # one that came meanwhile is newer than the answer
            signals = self._signals
            try:
                (objects,) = await self._call(Message(_BLUEZ, "/", _OBJECTS, "GetManagedObjects"))
            except Unreachable as error:
                _log.debug("BlueZ does not answer: %s", error)
                objects = {}
        self._adapters.found({path: _plain(found[_ADAPTER]) for path, found in objects.items() if _ADAPTER in found})
        self.looked = True
        self._changed()

    async def _call_bus(self, member: str, argument: str) -> list[Any]:
        return await self._call(Message(_BUS, "/org/freedesktop/DBus", _BUS, member, signature="s", body=[argument]))

    async def _call(self, message: Message) -> list[Any]:
        """The answer. Raises `Unreachable`."""
        if self._bus is None or not self._bus.connected:
            raise Unreachable("the system bus is not connected")
        member = message.member
        try:
            async with asyncio.timeout(CALL_LIMIT_S):
                reply = await self._bus.call(message)
        except (OSError, EOFError, DBusError, TimeoutError) as error:
            raise Unreachable(f"{member}: {_shown(error)}") from None
        if reply is None or reply.message_type is MessageType.ERROR:
            raise Unreachable(f"{member}: {_said(reply)}" if reply else f"{member}: no answer")
        return reply.body

    def _signal(self, message: Message) -> None:
        """What the bus says by itself."""
        if message.message_type is not MessageType.SIGNAL:
            return
        body = message.body
        match message.member:
            case "NameOwnerChanged" if body[0] == _BLUEZ:
                self._owner_changed(body[2] or None)
            case "InterfacesAdded" if _ADAPTER in body[1]:
                self._adapters.added(body[0], _plain(body[1][_ADAPTER]))
            case "InterfacesRemoved" if _ADAPTER in body[1]:
                self._adapters.removed(body[0])
            case "PropertiesChanged" if body[0] == _ADAPTER:
                self._adapters.changed(message.path or "", _plain(body[1]))
            case _:
                return
        self._signals += 1
        self._changed()

    def _owner_changed(self, owner: str | None) -> None:
        self._daemon = owner
        self._adapters.forget()
        if self._looking is not None:
            self._looking.cancel()
        if owner is not None:
            self._looking = asyncio.get_running_loop().create_task(self.look(), name="bluez")


async def leave_dead_bus() -> None:
    """Have bleak give up its connection to the bus if that has ended, before anything is sent over it.

    dbus-fast puts an error of sending into a future that nobody reads, which asyncio reports when the process ends.
    """
    with contextlib.suppress(Exception):  # if there is no bus, bleak has given up the former connection all the same
        await asyncio.wait_for(get_global_bluez_manager(), CALL_LIMIT_S)


async def renew() -> None:
    """Have bleak forget all that it has learnt of the bus, and tell every client that it is disconnected.

    When bluetoothd is killed it tells nobody, and bleak's clients believe for ever that they are connected; when it is back,
    bleak takes what it knew of the former one for true. bleak does the right thing when its bus ends, so that is ended.
    """
    with contextlib.suppress(Exception):  # whatever is wrong with the bus: it is given up
        manager = await asyncio.wait_for(get_global_bluez_manager(), CALL_LIMIT_S)
        bus = manager._bus  # noqa: SLF001 - bleak offers no other way
        if bus is not None:
            bus.disconnect()
            await asyncio.wait_for(bus.wait_for_disconnect(), CALL_LIMIT_S)  # type: ignore[no-untyped-call]


def _plain(properties: dict[str, Any]) -> dict[str, Any]:
    return {name: each.value if isinstance(each, Variant) else each for name, each in properties.items()}


def _said(error: Message) -> str:
    """An error of D-Bus: its name, and its text if it has one."""
    return ": ".join(str(each) for each in (error.error_name, *error.body[:1]) if each)


def _shown(error: BaseException) -> str:
    if isinstance(error, FileNotFoundError):
        return f"no socket {error.filename}" if error.filename else "its socket is not there"
    return str(error) or type(error).__name__
