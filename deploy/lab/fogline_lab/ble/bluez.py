"""Stand-in for bluetoothd: `org.bluez` on a real bus, with a central on the virtual air as its radio.

It behaves as BlueZ 5.66 and 5.82 were observed to, for a client that scans, connects, reads, writes and subscribes. Faults:

| | |
|---|---|
| `fail(member, error, text)` | the next call of a method is answered with an error (`StartNotify`: `InProgress`) |
| `hangs` | no call is answered |
| `unplug`, `plug` | the dongle |
| `stop(killed=True)`, `start` | bluetoothd is killed, without a signal on the bus, and restarted |
| `adapter.deaf` | advertisements are lost, as BlueZ loses them: the scanner seems to run |
| `adapter.stuck` | the same, until a client starts a scan (`Stuck.SCANNER`), or the adapter is power-cycled (`Stuck.ADAPTER`) |
| `adapter.power(on=False)` | another program switches the adapter off |
| `adapter.block(blocked=True)` | rfkill blocks the adapter: it is off, and `Powered` cannot be set |
| `adapter.one_stop_stops_all` | BlueZ 5.82: StopDiscovery of any client ends discovery for all, until the next StartDiscovery |
| `adapter.monitors.refused` | Linux refuses passive scans, though BlueZ offers them |
| `adapter.monitors.once` | the controller reports each device once only in a passive scan |
| `adapter.flap_every_s` | BlueZ 5.82: `Discovering` goes false for 0.1 s every 10 s, while discovery goes on (default) |

Peripherals have faults of their own (`peripheral.Peripheral`).
"""

import asyncio
import logging
from collections.abc import Set as AbstractSet
from typing import Any

from dbus_fast import Message, MessageType

from fogline_lab.ble.adapter1 import ADAPTER, Adapter1
from fogline_lab.ble.controller import Air
from fogline_lab.ble.gatt import CHARACTERISTIC, DESCRIPTOR, DEVICE, Links
from fogline_lab.ble.monitors import MANAGER
from fogline_lab.ble.objects import BLUEZ_ERROR, OBJECT_MANAGER, PROPERTIES, DBusFailure, Objects

ADDRESS = "D0:00:00:00:00:01"
_log = logging.getLogger(__name__)


class FakeBluez:
    """BlueZ on the bus at `address`. `radio`: address of its adapter. `out_of_reach`: devices that it does not receive.

    `calls`: method and path of every call. `experimental`: bluetoothd offers passive scans from its next start on.
    """

    def __init__(
        self,
        air: Air,
        address: str,
        *,
        radio: str = ADDRESS,
        out_of_reach: AbstractSet[str] = frozenset(),
        experimental: bool = False,
    ) -> None:
        self.objects = Objects(address, "org.bluez")
        self.links = Links(self.objects)
        self.adapter = Adapter1(air, self.objects, self.links, radio=radio, out_of_reach=out_of_reach)
        self.adapter.monitors.offered = experimental
        self.calls: list[tuple[str, str]] = []
        self.hangs = False
        self._plugged = True
        self._failures: dict[str, list[DBusFailure]] = {}
        self._flapping: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, *, powered: bool = True) -> None:
        """Start bluetoothd."""
        await self.adapter.radio.open()
        self.links.device = self.adapter.radio.device
        await self.objects.open(self._on_message)
        if self._plugged:
            self.adapter.add(powered=powered)
        self._flapping = asyncio.get_running_loop().create_task(self.adapter.flap())

    async def stop(self, *, killed: bool = False) -> None:
        """End bluetoothd; `killed`: without a signal on the bus."""
        self.objects.mute = killed
        if self._flapping is not None:
            self._flapping.cancel()
        await self.adapter.remove()
        self.objects.close()
        self.objects.mute = False

    async def unplug(self) -> None:
        """Unplug the dongle."""
        self._plugged = False
        await self.adapter.remove()

    def plug(self, *, powered: bool = True) -> None:
        """Plug the dongle in."""
        self._plugged = True
        self.adapter.add(powered=powered)

    def fail(self, member: str, error: str, text: str = "", *, times: int = 1) -> None:
        """Answer the next calls of a method with this error of `org.bluez.Error`."""
        self._failures.setdefault(member, []).extend([DBusFailure(BLUEZ_ERROR + error, text)] * times)

    def close(self) -> None:
        """End all tasks."""
        self.adapter.devices.close()
        for task in (*self._tasks, *(() if self._flapping is None else (self._flapping,))):
            task.cancel()

    # --- the bus

    def _on_message(self, message: Message) -> bool | None:
        if message.message_type is MessageType.SIGNAL:
            if message.member == "NameOwnerChanged" and not message.body[2]:
                self.adapter.monitors.left(message.body[0])
                self._do(self.adapter.stop_discovery(message.body[0]))
            elif message.member == "InterfacesAdded":
                self._do(self.adapter.exported(message.sender or "", *message.body))
            return None
        ours = (OBJECT_MANAGER, PROPERTIES, ADAPTER, MANAGER, DEVICE, CHARACTERISTIC, DESCRIPTOR)
        if message.message_type is not MessageType.METHOD_CALL or message.interface not in ours:
            return None
        self._do(self._answer(message))
        return True

    async def _answer(self, message: Message) -> None:
        member, path = message.member or "", message.path or ""
        self.calls.append((member, path))
        if self.hangs:
            return
        try:
            if self._failures.get(member):
                raise self._failures[member].pop(0)  # noqa: TRY301 - an injected fault is answered as a real one
            signature, body = await self._call(message, member, path)
        except DBusFailure as error:
            self.objects.send(Message.new_error(message, error.name, error.text))
        except Exception as error:  # noqa: BLE001 - bumble's errors, when a connection ends, are answered as any other
            _log.debug("%s of %s", member, path, exc_info=True)
            self.objects.send(Message.new_error(message, BLUEZ_ERROR + "Failed", repr(error)))
        else:
            self.objects.send(Message.new_method_return(message, signature, body))

    async def _call(self, message: Message, member: str, path: str) -> tuple[str, list[Any]]:
        body, tree = message.body, self.objects.tree
        if message.interface == OBJECT_MANAGER:
            return "a{oa{sa{sv}}}", [tree]
        if path not in tree:
            raise DBusFailure("org.freedesktop.DBus.Error.UnknownObject", f'Method "{member}" doesn\'t exist')
        match message.interface, member:
            case i, "GetAll" if i == PROPERTIES:
                return "a{sv}", [tree[path].get(body[0], {})]
            case i, "Get" if i == PROPERTIES:
                return "v", [tree[path][body[0]][body[1]]]
            case i, "Set" if i == PROPERTIES:
                if self.adapter.blocked:
                    raise DBusFailure(BLUEZ_ERROR + "Failed", "")
                await self.adapter.power(on=bool(body[2].value))
            case i, _ if i in (ADAPTER, MANAGER):
                await self.adapter.call(member, message.sender or "", body)
            case i, "Connect" if i == DEVICE:
                self.adapter.check_power()
                await self.links.connect(path)
            case i, "Disconnect" if i == DEVICE:
                await self.links.disconnect(path)
            case _:
                return await self.links.call(member, path, body)
        return "", []

    def _do(self, coroutine: Any) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
