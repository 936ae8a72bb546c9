"""What stands in for bluetoothd: `org.bluez` on a real bus, its radio a central on the virtual air.

It does what BlueZ 5.66 and 5.82 were seen to do, with what a program needs: scan, connect, read, write, be notified. Faults:

| | |
|---|---|
| `fail(member, error, text)` | the next call of a method is answered with an error (`StartNotify`: `InProgress`) |
| `deaf` | advertisements are lost, as BlueZ loses them: nothing is said, the scanner seems to run. `swallowed` counts them |
| `stuck` | the same, until somebody starts a scan (`Stuck.SCANNER`), or switches the adapter off and on (`Stuck.ADAPTER`) |
| `hangs` | no call is answered |
| `power(on=False)` | somebody switches the adapter off |
| `unplug`, `plug` | the dongle |
| `stop(killed=True)`, `start` | bluetoothd dies without a word, and comes back |
| `one_stop_stops_all` | BlueZ 5.82: StopDiscovery of any client ends discovery for all clients, until the next StartDiscovery |
| `flap_every_s` | BlueZ 5.82: `Discovering` goes false for 0.1 s every 10 s, while discovery goes on (default) |
| `blocked` | rfkill blocks the adapter: it is off, and `Powered` cannot be set |

Peripherals have faults of their own (`air.Peripheral`): one that is `numb` accepts connections and answers no ATT request, one
that is `aloof` advertises and accepts no connection.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Set as AbstractSet
from enum import StrEnum
from typing import Any

from bumble.device import Device, DeviceConfiguration
from bumble.hci import Address
from dbus_fast import Message, MessageType, Variant

from fogline.advertisement import decode
from fogline.errors import Poison
from fogline.testing.ble.controller import Air, RadioController
from fogline.testing.ble.gatt import CHARACTERISTIC, DESCRIPTOR, DEVICE, Links
from fogline.testing.ble.objects import OBJECT_MANAGER, PROPERTIES, DBusFailure, Objects

ADAPTER = "org.bluez.Adapter1"
HCI = "/org/bluez/hci0"
ADDRESS = "D0:00:00:00:00:01"
HOLE_S = 6.0
"""Without the filter `DuplicateData` BlueZ 5.82 says nothing of a device for about so long after it has said something."""
FLAP_EVERY_S, FLAP_S = 10.0, 0.1
TEMPORARY_S = 30.0
"""A device that is not scanned for is forgotten after so long (BlueZ's TemporaryTimeout)."""
_ERROR = "org.bluez.Error."
_log = logging.getLogger(__name__)


class Stuck(StrEnum):
    """What it takes until advertisements come again."""

    SCANNER = "scanner"
    ADAPTER = "adapter"


class FakeBluez:
    """On `air`, at the bus of an address. `radio`: its own address; `out_of_reach`: those of whom it does not hear.

    `calls`: method and path of every call. `flaps`: how often `Discovering` flapped.
    """

    def __init__(self, air: Air, address: str, *, radio: str = ADDRESS, out_of_reach: AbstractSet[str] = frozenset()) -> None:
        self.objects = Objects(address, "org.bluez")
        self.links = Links(self.objects)
        self.calls: list[tuple[str, str]] = []
        self.deaf = False
        self.swallowed: Counter[str] = Counter()
        self.hangs = False
        self.stuck: Stuck | None = None
        self.one_stop_stops_all = False
        self.flap_every_s = FLAP_EVERY_S
        self.flaps = 0
        self._blocked = False
        self._flapping: asyncio.Task[None] | None = None
        self._air = air
        self._radio = radio
        self._out_of_reach = out_of_reach
        self._device: Device | None = None
        self._duplicates: dict[str, bool] = {}
        self._scanners: set[str] = set()
        self._heard: dict[str, dict[str, Any]] = {}
        self._said_s: dict[str, float] = {}
        self._failures: dict[str, list[DBusFailure]] = {}
        self._waiting: list[asyncio.Future[None]] = []
        self._plugged = True
        self._tasks: set[asyncio.Task[None]] = set()

    # --- what a test does

    async def start(self, *, powered: bool = True) -> None:
        """Bluetoothd starts."""
        if self._device is None:
            controller = RadioController("hci0", self._air)
            settings = DeviceConfiguration(name="hci0", address=Address(self._radio))
            self._device = Device.from_config_with_hci(settings, controller, controller)
            self.links.device = self._device
            await self._device.power_on()
            self._device.on("advertisement", self._on_advertisement)
        await self.objects.open(self._on_message)
        if self._plugged:
            self._add_adapter(powered=powered)
        self._flapping = asyncio.get_running_loop().create_task(self._flap())

    async def stop(self, *, killed: bool = False) -> None:
        """Bluetoothd ends; `killed`: without a word to anybody."""
        self.objects.mute = killed
        if self._flapping is not None:
            self._flapping.cancel()
        await self.links.drop_all()
        await self._stop_scanning()
        self._scanners.clear()
        self.objects.remove(HCI)
        self.objects.close()
        self._forget()
        self.objects.mute = False

    async def unplug(self) -> None:
        """The dongle is pulled out."""
        self._plugged = False
        await self.links.drop_all()
        self._scanners.clear()
        await self._stop_scanning()
        self.objects.remove(HCI)
        self._forget()

    def plug(self, *, powered: bool = True) -> None:
        """And put in again."""
        self._plugged = True
        self._add_adapter(powered=powered)

    async def power(self, *, on: bool) -> None:
        """Somebody switches the adapter off or on. A running scanner is dead then, and nobody is told."""
        if not on:
            await self.links.drop_all()
            self._scanners.clear()
            await self._stop_scanning()
            self._tell_discovering(discovering=False)
        elif self.stuck is Stuck.ADAPTER:
            self.stuck = None
        self.objects.change(HCI, ADAPTER, {"Powered": Variant("b", on)})

    async def block(self, *, blocked: bool) -> None:
        """`rfkill block bluetooth`, or `unblock`."""
        self._blocked = blocked
        if blocked:
            await self.power(on=False)
        self.objects.change(HCI, ADAPTER, {"PowerState": Variant("s", "off-blocked" if blocked else "off")})

    def fail(self, member: str, error: str, text: str = "", *, times: int = 1) -> None:
        """The next calls of a method get this error of `org.bluez.Error`."""
        self._failures.setdefault(member, []).extend([DBusFailure(_ERROR + error, text)] * times)

    @property
    def scanning(self) -> bool:
        """Whether anybody scans."""
        return bool(self._scanners)

    async def until_heard(self) -> None:
        """Return after the next advertisement that somebody was told of."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        await waiting

    def close(self) -> None:
        """End all that runs."""
        for task in (*self._tasks, *(() if self._flapping is None else (self._flapping,))):
            task.cancel()

    # --- the radio

    def _add_adapter(self, *, powered: bool) -> None:
        properties = {
            "Address": Variant("s", self._radio),
            "Name": Variant("s", "fogline"),
            "Alias": Variant("s", "fogline"),
            "Powered": Variant("b", powered and not self._blocked),
            "Discovering": Variant("b", False),
            "Roles": Variant("as", ["central", "peripheral"]),
            "Class": Variant("u", 0),
            "UUIDs": Variant("as", []),
        }
        self.objects.add(HCI, ADAPTER, properties)

    def _on_advertisement(self, advertisement: Any) -> None:
        """As Device1's properties: what an advertisement says is added to what was known."""
        address = advertisement.address.to_string(False)
        if not self._scanners or self.deaf or self.stuck is not None:
            self.swallowed[address] += 1
            return
        if address in self._out_of_reach:
            return
        path = f"{HCI}/dev_{address.replace(':', '_')}"
        now_s = asyncio.get_running_loop().time()
        if not any(self._duplicates.values()) and now_s - self._said_s.get(path, -HOLE_S) < HOLE_S:
            return
        self._said_s[path] = now_s
        self.links.addresses[path] = advertisement.address
        known = self._heard.setdefault(path, {})
        try:
            _learn(known, bytes(advertisement.data_bytes))
        except Poison:
            return
        properties = {**known, "RSSI": Variant("n", advertisement.rssi)}
        if path in self.objects.tree:
            self.objects.change(path, DEVICE, properties)
        else:
            self.objects.add(path, DEVICE, {**_new_device(address), **properties})
            self._do(self._expire(path))
        while self._waiting:
            waiting = self._waiting.pop()
            if not waiting.done():
                waiting.set_result(None)

    async def _expire(self, path: str) -> None:
        """Forget a device that nobody scans for."""
        while path in self.objects.tree:
            await asyncio.sleep(1)
            quiet_s = asyncio.get_running_loop().time() - self._said_s.get(path, 0.0)
            if not self._scanners and not self.links.uses(path) and quiet_s > TEMPORARY_S:
                self.objects.remove(path)
                self._heard.pop(path, None)
                return

    def _forget(self) -> None:
        self._heard.clear()
        self._said_s.clear()

    async def _stop_scanning(self) -> None:
        if self._device is not None and self._device.is_scanning:
            await self._device.stop_scanning()

    # --- the bus

    def _on_message(self, message: Message) -> bool | None:
        if message.message_type is MessageType.SIGNAL:
            if message.member == "NameOwnerChanged" and not message.body[2]:
                self._do(self._stop_discovery(message.body[0]))
            return None
        ours = (OBJECT_MANAGER, PROPERTIES, ADAPTER, DEVICE, CHARACTERISTIC, DESCRIPTOR)
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
            self._fail_if_told(member)
            signature, body = await self._call(message, member, path)
        except DBusFailure as error:
            self.objects.send(Message.new_error(message, error.name, error.text))
        except Exception as error:  # noqa: BLE001 - what bumble makes of a link that ends is an error like any other
            _log.debug("%s of %s", member, path, exc_info=True)
            self.objects.send(Message.new_error(message, _ERROR + "Failed", repr(error)))
        else:
            self.objects.send(Message.new_method_return(message, signature, body))

    def _fail_if_told(self, member: str) -> None:
        if self._failures.get(member):
            raise self._failures[member].pop(0)

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
                if self._blocked:
                    raise DBusFailure(_ERROR + "Failed", "")
                await self.power(on=bool(body[2].value))
            case i, _ if i == ADAPTER:
                await self._call_adapter(member, message.sender or "", body)
            case i, "Connect" if i == DEVICE:
                self._check_power()
                await self.links.connect(path)
            case i, "Disconnect" if i == DEVICE:
                await self.links.disconnect(path)
            case _:
                return await self.links.call(member, path, body)
        return "", []

    async def _call_adapter(self, member: str, sender: str, body: list[Any]) -> None:
        match member:
            case "SetDiscoveryFilter":
                wanted = body[0].get("DuplicateData")
                self._duplicates[sender] = bool(wanted and wanted.value)
            case "StartDiscovery":
                await self._start_discovery(sender)
            case "StopDiscovery":
                self._check_power()
                if sender not in self._scanners:
                    raise DBusFailure(_ERROR + "Failed", "No discovery started")
                await self._stop_discovery(sender)
            case "RemoveDevice":
                await self.links.drop(body[0])
                self.objects.remove(body[0])
            case _:
                raise DBusFailure("org.freedesktop.DBus.Error.UnknownMethod", member)

    def _check_power(self) -> None:
        if not self.objects.get(HCI, ADAPTER, "Powered"):
            raise DBusFailure(_ERROR + "NotReady", "Resource Not Ready")

    async def _start_discovery(self, sender: str) -> None:
        self._check_power()
        if sender in self._scanners:
            raise DBusFailure(_ERROR + "InProgress", "Operation already in progress")
        if self.stuck is Stuck.SCANNER:
            self.stuck = None
        self._scanners.add(sender)
        if self._device is not None and not self._device.is_scanning:
            await self._device.start_scanning(active=True, filter_duplicates=False)
        self._tell_discovering(discovering=True)

    async def _stop_discovery(self, owner: str) -> None:
        if owner not in self._scanners:
            return
        self._scanners.discard(owner)
        self._duplicates.pop(owner, None)
        if self._scanners and not self.one_stop_stops_all:
            return
        await self._stop_scanning()
        self._tell_discovering(discovering=False)
        if self._scanners:
            return  # BlueZ believes that it still scans for these
        for path, interfaces in list(self.objects.tree.items()):
            if "RSSI" in interfaces.get(DEVICE, ()):
                self.objects.change(path, DEVICE, {}, ["RSSI"])

    def _tell_discovering(self, *, discovering: bool) -> None:
        self.objects.change(HCI, ADAPTER, {"Discovering": Variant("b", discovering)})

    async def _flap(self) -> None:
        while True:
            await asyncio.sleep(self.flap_every_s)
            if self._device is not None and self._device.is_scanning:
                self._tell_discovering(discovering=False)
                await asyncio.sleep(FLAP_S)
                self._tell_discovering(discovering=self._device.is_scanning)
                self.flaps += 1

    def _do(self, coroutine: Any) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _learn(known: dict[str, Any], data: bytes) -> None:
    """Add what an advertisement says. Raises `Poison` for what is none."""
    said = decode(data)
    if said.name is not None:
        known["Name"] = known["Alias"] = Variant("s", said.name)
    if said.manufacturer:
        known["ManufacturerData"] = Variant("a{qv}", {key: Variant("ay", each) for key, each in said.manufacturer.items()})
    if said.service_data:
        known["ServiceData"] = Variant("a{sv}", {key: Variant("ay", each) for key, each in said.service_data.items()})
    if said.services:
        known["UUIDs"] = Variant("as", list(said.services))
    if said.tx_power is not None:
        known["TxPower"] = Variant("n", said.tx_power)


def _new_device(address: str) -> dict[str, Variant]:
    flags = {name: Variant("b", False) for name in ("Connected", "Paired", "Bonded", "Trusted", "Blocked", "ServicesResolved")}
    return {
        "Address": Variant("s", address),
        "AddressType": Variant("s", "random"),
        "Alias": Variant("s", address.replace(":", "-")),
        "Adapter": Variant("o", HCI),
        "UUIDs": Variant("as", []),
        **flags,
    }
