"""Connections of the stand-in for bluetoothd, and the services of the connected devices."""

import asyncio
import logging
from typing import Any

from bumble.att import ATT_Error, ErrorCode
from bumble.core import UUID
from bumble.core import TimeoutError as BumbleTimeout
from bumble.device import Device, Peer
from bumble.gatt import Characteristic
from dbus_fast import Variant

from fogline_lab.ble.objects import BLUEZ_ERROR, DBusFailure, Objects

DEVICE = "org.bluez.Device1"
SERVICE, CHARACTERISTIC, DESCRIPTOR = (f"org.bluez.Gatt{each}1" for each in ("Service", "Characteristic", "Descriptor"))
CONNECT_LIMIT_S = 20.0
_CAN = Characteristic.Properties
_FLAGS = {
    _CAN.READ: "read",
    _CAN.WRITE_WITHOUT_RESPONSE: "write-without-response",
    _CAN.WRITE: "write",
    _CAN.NOTIFY: "notify",
    _CAN.INDICATE: "indicate",
}
_NOT_EXPORTED = "1800"
"""Generic Access: bluetoothd does not export it."""
_LINK_ENDED = "Operation failed with ATT error: 0x00"
"""Error text of calls that are under way when the connection ends."""
_log = logging.getLogger(__name__)


class _Link:
    """One connection. `attributes`: bumble's, by path. `subscribers`: callbacks by path. `over`: done at its end."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.peer: Any = Peer(connection)
        self.attributes: dict[str, Any] = {}
        self.subscribers: dict[str, Any] = {}
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Links:
    """Connections by the path of the device. `addresses`: of received devices, by path. `device`: the central."""

    device: Device

    def __init__(self, objects: Objects) -> None:
        self.addresses: dict[str, Any] = {}
        self._objects = objects
        self._links: dict[str, _Link] = {}
        self._connecting: dict[str, asyncio.Task[Any]] = {}
        self._one_at_a_time = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    def uses(self, path: str) -> bool:
        """Return True if the device is connected or being connected to."""
        return path in self._links or path in self._connecting

    async def connect(self, path: str) -> None:
        """Do as Device1.Connect: the kernel makes one connection at a time."""
        if path in self._links:
            return
        if path in self._connecting:
            raise DBusFailure(BLUEZ_ERROR + "InProgress", "Operation already in progress")
        attempt = self._connecting[path] = asyncio.ensure_future(self._attempt(path))
        try:
            connection = await attempt
        except (BumbleTimeout, TimeoutError, asyncio.CancelledError):
            raise DBusFailure(BLUEZ_ERROR + "Failed", "le-connection-abort-by-local") from None
        finally:
            self._connecting.pop(path, None)
        link = self._links[path] = _Link(connection)
        connection.on("disconnection", lambda _: self._ended(path))
        self._objects.change(path, DEVICE, {"Connected": Variant("b", True)})
        task = asyncio.get_running_loop().create_task(self._resolve(path, link))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def disconnect(self, path: str) -> None:
        """Do as Device1.Disconnect, which also cancels an attempt."""
        if path in self._connecting:
            self._connecting[path].cancel()
            if self.device.is_le_connecting:
                await self.device.cancel_connection()  # type: ignore[no-untyped-call]  # bumble has no type for it
        elif path in self._links:
            await self.drop(path)
        else:
            raise DBusFailure(BLUEZ_ERROR + "NotConnected", "Not Connected")

    async def drop(self, path: str) -> None:
        """End a connection."""
        link = self._links.get(path)
        if link is not None:
            await link.connection.disconnect()

    async def drop_all(self) -> None:
        """End all connections."""
        for path in list(self._links):
            await self.drop(path)

    async def call(self, member: str, path: str, body: list[Any]) -> tuple[str, list[Any]]:
        """Perform a method of a characteristic. It fails when the connection ends; bumble alone would wait for 30 s."""
        link, attribute = self._attribute(path)
        operation = asyncio.ensure_future(self._operate(link, attribute, member, path, body))
        await asyncio.wait((operation, link.over), return_when=asyncio.FIRST_COMPLETED)
        if not operation.done():
            operation.cancel()
            raise DBusFailure(BLUEZ_ERROR + "Failed", _LINK_ENDED)
        return operation.result()

    async def _operate(self, link: _Link, attribute: Any, member: str, path: str, body: list[Any]) -> tuple[str, list[Any]]:
        try:
            match member:
                case "ReadValue":
                    value = bytes(await link.peer.read_value(attribute))
                    self._objects.change(path, CHARACTERISTIC, {"Value": Variant("ay", value)})
                    return "ay", [value]
                case "WriteValue":
                    kind = body[1].get("type")
                    response = kind is None or kind.value != "command"
                    await link.peer.write_value(attribute, bytes(body[0]), with_response=response)
                case "StartNotify":
                    await self._start_notify(link, attribute, path)
                case "StopNotify":
                    subscriber = link.subscribers.pop(path, None)
                    if subscriber is None:
                        raise DBusFailure(BLUEZ_ERROR + "Failed", "No notify session started")
                    await attribute.unsubscribe(subscriber)
                case _:
                    raise DBusFailure("org.freedesktop.DBus.Error.UnknownMethod", member)
        except ATT_Error as error:
            raise _failure(error) from None
        return "", []

    async def _attempt(self, path: str) -> Any:
        async with self._one_at_a_time:
            return await self.device.connect(self.addresses[path], timeout=CONNECT_LIMIT_S)

    async def _start_notify(self, link: _Link, attribute: Any, path: str) -> None:
        if not attribute.properties & (_CAN.NOTIFY | _CAN.INDICATE):
            raise DBusFailure(BLUEZ_ERROR + "NotSupported", "Operation is not supported")

        def notify(value: bytes) -> None:
            self._objects.change(path, CHARACTERISTIC, {"Value": Variant("ay", bytes(value))})

        link.subscribers[path] = notify
        await attribute.subscribe(notify)
        self._objects.change(path, CHARACTERISTIC, {"Notifying": Variant("b", True)})

    def _attribute(self, path: str) -> tuple[_Link, Any]:
        link = self._links.get("/".join(path.split("/")[:5]))
        if link is None or path not in link.attributes:
            raise DBusFailure(BLUEZ_ERROR + "Failed", "Not connected")
        return link, link.attributes[path]

    async def _resolve(self, path: str, link: _Link) -> None:
        """Discover the services, and publish them as objects."""
        try:
            await link.peer.request_mtu(517)
            await link.peer.discover_all()
        except Exception:  # noqa: BLE001 - bumble raises many kinds of errors while a connection ends
            _log.debug("the services of %s", path, exc_info=True)
            if self._links.get(path) is link:
                await self.drop(path)  # as bluetoothd does after ATT's own limit of 30 s
            return
        for service in link.peer.services:
            if service.uuid != UUID(_NOT_EXPORTED):
                self._add_service(path, link, service)
        self._objects.change(path, DEVICE, {"ServicesResolved": Variant("b", True)})

    def _add_service(self, path: str, link: _Link, service: Any) -> None:
        service_path = f"{path}/service{service.handle:04x}"
        properties = {"UUID": Variant("s", _full(service.uuid)), "Device": Variant("o", path), "Primary": Variant("b", True)}
        self._objects.add(service_path, SERVICE, {**properties, "Includes": Variant("ao", [])})
        for characteristic in service.characteristics:
            below = f"{service_path}/char{characteristic.handle - 1:04x}"
            link.attributes[below] = characteristic
            flags = [name for flag, name in _FLAGS.items() if characteristic.properties & flag]
            properties = {
                "UUID": Variant("s", _full(characteristic.uuid)),
                "Service": Variant("o", service_path),
                "Value": Variant("ay", b""),
                "Notifying": Variant("b", False),
                "Flags": Variant("as", flags),
                "MTU": Variant("q", link.peer.gatt_client.mtu),
            }
            self._objects.add(below, CHARACTERISTIC, properties)

    def _ended(self, path: str) -> None:
        link = self._links.pop(path, None)
        if link is not None and not link.over.done():
            link.over.set_result(None)
        for each in [each for each in self._objects.tree if each.startswith(f"{path}/service") and each.count("/") == 5]:
            self._objects.remove(each)
        self._objects.change(path, DEVICE, {"ServicesResolved": Variant("b", False)})
        self._objects.change(path, DEVICE, {"Connected": Variant("b", False)})


def _full(uuid: UUID) -> str:
    """Return a UUID in full and in lower case; bumble's bytes are little-endian."""
    digits = uuid.to_bytes(force_128=True)[::-1].hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _failure(error: ATT_Error) -> DBusFailure:
    """Return the D-Bus error of an ATT error, as bluetoothd's `create_gatt_dbus_error` does."""
    match error.error_code:
        case ErrorCode.READ_NOT_PERMITTED:
            return DBusFailure(BLUEZ_ERROR + "NotPermitted", "Read not permitted")
        case ErrorCode.WRITE_NOT_PERMITTED:
            return DBusFailure(BLUEZ_ERROR + "NotPermitted", "Write not permitted")
        case code:
            return DBusFailure(BLUEZ_ERROR + "Failed", f"Operation failed with ATT error: 0x{int(code):02x}")
