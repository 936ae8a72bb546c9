"""Watches BlueZ on D-Bus: the owner of its name, its adapters and their state (`org.bluez.Adapter.5`). bleak does not."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dbus_fast import BusType, Message, MessageType, Variant
from dbus_fast.aio import MessageBus
from dbus_fast.errors import AuthError, DBusError, InvalidAddressError

from fogline.errors import Unreachable
from fogline_edge.adapters.ble.supervision.bluez_state import Adapters, BluezState

CALL_LIMIT_S = 5.0
"""Time limit of a call to BlueZ, so that a daemon that hangs blocks nothing."""

_RFKILL = Path("/sys/class/rfkill")
_BLUEZ, _ADAPTER, _MONITORS = "org.bluez", "org.bluez.Adapter1", "org.bluez.AdvertisementMonitorManager1"
_BUS, _OBJECTS, _PROPERTIES = "org.freedesktop.DBus", "org.freedesktop.DBus.ObjectManager", "org.freedesktop.DBus.Properties"
_MATCHES = (
    f"type='signal',sender='{_BUS}',interface='{_BUS}',member='NameOwnerChanged',arg0='{_BLUEZ}'",
    f"type='signal',sender='{_BLUEZ}',interface='{_OBJECTS}'",
    f"type='signal',sender='{_BLUEZ}',interface='{_PROPERTIES}',arg0='{_ADAPTER}'",
)
_log = logging.getLogger(__name__)


class Bluez:
    """Keeps `state` up to date while `run` runs, and calls `on_change` after each change.

    `wanted`: name (`hci1`) or address of the adapter, by default the first that is on. `looked`: BlueZ's objects were queried.
    """

    def __init__(self, wanted: str | None, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._bus: MessageBus | None = None
        self._daemon: str | None = None
        self._adapters = Adapters(wanted)
        self._why: str | None = "not connected yet"
        self._signals = 0
        self.looked = False
        self._query: asyncio.Task[None] | None = None

    @property
    def state(self) -> BluezState:
        """The present state of BlueZ."""
        adapters, path = self._adapters, self._adapters.chosen
        counts = adapters.unplugged, adapters.switched_off
        if path is None:
            return BluezState(self._why, self._daemon, None, False, *counts)
        name, (powered, scans, soft) = path.rpartition("/")[2], adapters.state(path)
        by = None if powered else blocked(name) or ("soft" if soft else None)
        return BluezState(self._why, self._daemon, name, powered, *counts, scans, by, adapters.may_monitor(path))

    async def run(self) -> None:
        """Connect to the bus and watch BlueZ until the connection ends. Always raises `Unreachable`; safe to cancel."""
        bus = MessageBus(bus_type=BusType.SYSTEM)
        try:
            await self._connect(bus)
            self._why = None
            self._on_change()
            await bus.wait_for_disconnect()  # type: ignore[no-untyped-call]  # dbus-fast has no type for it
        except (OSError, EOFError, DBusError, AuthError, InvalidAddressError, TimeoutError, Unreachable) as error:
            raise Unreachable(_bus_error_text(error)) from None
        else:
            raise Unreachable("the connection to it ended")
        finally:
            self._bus, self._daemon = None, None
            if self._query is not None:
                self._query.cancel()
            self._adapters.clear()
            with contextlib.suppress(Exception):  # the connection is given up, whatever the bus answers
                bus.disconnect()

    def lost(self, why: str) -> None:
        """Note that the bus is unreachable, for the reason `why`."""
        self._why = why
        self._on_change()

    async def power(self, adapter: str, *, on: bool) -> None:
        """Switch an adapter on or off. Raises `Unreachable`."""
        path, body = f"/org/bluez/{adapter}", [_ADAPTER, "Powered", Variant("b", on)]
        if not on:
            self._adapters.going_off(path)
        try:
            await self._call(Message(_BLUEZ, path, _PROPERTIES, "Set", signature="ssv", body=body))
        finally:
            if on:
                self._adapters.back_on(path)

    async def _connect(self, bus: MessageBus) -> None:
        async with asyncio.timeout(CALL_LIMIT_S):
            await bus.connect()
        self._bus = bus
        bus.add_message_handler(self._on_signal)
        for match in _MATCHES:
            await self._call_bus("AddMatch", match)
        with contextlib.suppress(Unreachable):
            (self._daemon,) = await self._call_bus("GetNameOwner", _BLUEZ)
        await self.look()

    async def look(self) -> None:
        """Query BlueZ's objects for its adapters. If systemd activates bluetoothd on demand, this call activates it."""
        signals = -1
        while signals != self._signals:  # a signal that came meanwhile is newer than the reply
            signals = self._signals
            try:
                (objects,) = await self._call(Message(_BLUEZ, "/", _OBJECTS, "GetManagedObjects"))
            except Unreachable as error:
                _log.debug("BlueZ does not answer: %s", error)
                objects = {}
        adapters = {path: _plain(found[_ADAPTER]) for path, found in objects.items() if _ADAPTER in found}
        self._adapters.replace(adapters, (path for path in adapters if _MONITORS in objects[path]))
        self.looked = True
        self._on_change()

    async def _call_bus(self, member: str, argument: str) -> list[Any]:
        return await self._call(Message(_BUS, "/org/freedesktop/DBus", _BUS, member, signature="s", body=[argument]))

    async def _call(self, message: Message) -> list[Any]:
        """Return the body of the reply. Raises `Unreachable` for an error or no reply in time."""
        if self._bus is None or not self._bus.connected:
            raise Unreachable("the system bus is not connected")
        member = message.member
        try:
            async with asyncio.timeout(CALL_LIMIT_S):
                reply = await self._bus.call(message)
        except (OSError, EOFError, DBusError, TimeoutError) as error:
            raise Unreachable(f"{member}: {_bus_error_text(error)}") from None
        if reply is None or reply.message_type is MessageType.ERROR:
            words = (reply.error_name, *reply.body[:1]) if reply else ("no answer",)
            raise Unreachable(": ".join(str(each) for each in (member, *words) if each))
        return reply.body

    def _on_signal(self, message: Message) -> None:
        if message.message_type is not MessageType.SIGNAL:
            return
        body = message.body
        match message.member:
            case "NameOwnerChanged" if body[0] == _BLUEZ:
                self._owner_changed(body[2] or None)
            case "InterfacesAdded" if _ADAPTER in body[1] or _MONITORS in body[1]:  # in one signal, or in two
                if _ADAPTER in body[1]:
                    self._adapters.added(body[0], _plain(body[1][_ADAPTER]))
                if _MONITORS in body[1]:
                    self._adapters.offers_monitors(body[0])
            case "InterfacesRemoved" if _ADAPTER in body[1]:
                self._adapters.removed(body[0])
            case "PropertiesChanged" if body[0] == _ADAPTER:
                self._adapters.changed(message.path or "", _plain(body[1]))
            case _:
                return
        self._signals += 1
        self._on_change()

    def _owner_changed(self, owner: str | None) -> None:
        self._daemon = owner
        self._adapters.clear()
        if self._query is not None:
            self._query.cancel()
        if owner is not None:
            self._query = asyncio.get_running_loop().create_task(self.look(), name="bluez")


def _plain(properties: dict[str, Any]) -> dict[str, Any]:
    return {name: each.value if isinstance(each, Variant) else each for name, each in properties.items()}


def _bus_error_text(error: BaseException) -> str:
    if isinstance(error, FileNotFoundError):
        return f"no socket {error.filename}" if error.filename else "its socket is not there"
    return str(error) or type(error).__name__


def blocked(adapter: str, folder: Path = _RFKILL) -> str | None:
    """Return `hard` if a hardware switch blocks the adapter (`hci0`), `soft` if software does, `None` if nothing does.

    BlueZ before 5.68 does not report it, so this reads the kernel's switch (Documentation/ABI/stable/sysfs-class-rfkill).
    """
    with contextlib.suppress(OSError):
        for each in sorted(folder.iterdir()):
            with contextlib.suppress(OSError):
                if _content(each / "name") == adapter:
                    return next((kind for kind in ("hard", "soft") if _content(each / kind) == "1"), None)
    return None


def _content(file: Path) -> str:
    return file.read_text(errors="replace").strip()
