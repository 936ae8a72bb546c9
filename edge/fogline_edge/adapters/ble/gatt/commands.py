"""Commands to connected devices: each is a write to a characteristic, and the device's response or notification."""

import asyncio
import logging
from collections.abc import Awaitable, Iterable
from functools import partial

from bleak import BleakClient
from bleak.backends.characteristic import BleakGATTCharacteristic
from bleak.exc import BleakGATTProtocolError

from fogline.commands.command import Command, Reply
from fogline.errors import Poison
from fogline_edge.adapters.ble.counters import BleCounters
from fogline_edge.adapters.ble.gatt.connection import ConnectedDevice, characteristic_of
from fogline_edge.adapters.ble.radio.bleak_manager import BLUEZ_ERRORS, error_text
from fogline_edge.adapters.port import CommandPort, answer_when_room
from fogline_edge.machine.boot import beacon
from fogline_edge.profiles.ble import AnswerBy, CommandRule, full_uuid
from fogline_edge.profiles.ble_values import encode_value

_OCTETS = "application/octet-stream"
_TEXT = "text/plain"
_STATUS = {  # Core Specification, Vol 3, Part F, section 3.4.1.1; from 0xFC: its Supplement, Part B
    0x01: 404,  # invalid handle
    0x02: 405,  # read not permitted
    0x03: 405,  # write not permitted
    0x05: 401,  # insufficient authentication
    0x06: 501,  # request not supported
    0x07: 416,  # invalid offset
    0x08: 403,  # insufficient authorization
    0x09: 503,  # prepare queue full
    0x0A: 404,  # attribute not found
    0x0C: 401,  # encryption key size too short
    0x0D: 413,  # invalid attribute value length
    0x0F: 401,  # insufficient encryption
    0x11: 503,  # insufficient resources
    0x13: 422,  # value not allowed
    0xFC: 403,  # write request rejected
    0xFE: 409,  # procedure already in progress
    0xFF: 422,  # out of range
}
_APPLICATION_ERRORS = range(0x80, 0xA0)
_WRITTEN = Reply(204)  # the device's write response
_log = logging.getLogger(__name__)


class GattCommands:
    """An `Executor` for all connected devices. Without `commands` it carries none."""

    def __init__(self, commands: CommandPort | None, counters: BleCounters) -> None:
        self._commands = commands
        self._counters = counters
        self._loop = asyncio.get_running_loop()
        self._connected: dict[str, ConnectedDevice] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._begun: set[str] = set()

    def up(self, name: str, device: ConnectedDevice) -> None:
        """Note that a device is connected; it takes commands if its profile has any."""
        if self._commands is not None and device.profile.commands and not device.over.is_set():
            self._connected[name] = device
            self._commands.reachable(name, self)

    async def down(self, name: str, device: ConnectedDevice) -> None:
        """Note that the connection has ended; its commands end as lost or not sent."""
        if self._connected.get(name) is device:
            del self._connected[name]
            if self._commands is not None:
                self._commands.unreachable(name, self)
        await _end(device.tasks.values())

    async def close(self) -> None:
        """End all commands. Safe to call twice."""
        await _end(self._tasks.values())

    def execute(self, command: Command) -> None:
        """As `Executor.execute`."""
        commands, device = self._commands, self._connected.get(command.device)
        if commands is None:
            return
        if device is None or device.over.is_set():
            commands.not_sent(command.id)
            return
        rule = next((each for each in device.profile.commands if each.name == command.name), None)
        if rule is None:
            names = ", ".join(each.name for each in device.profile.commands)
            commands.refused(command.id, f"profile {device.profile.name} has no command {command.name}; it has {names}")
            return
        try:
            data = encode_value(rule.encoding, command.data)
        except Poison as error:
            commands.refused(command.id, str(error))
            return
        self._counters.commands += 1
        task = self._loop.create_task(self._run(commands, device, rule, command, data), name=f"ble command {command.id}")
        device.tasks[command.id] = self._tasks[command.id] = task
        task.add_done_callback(partial(self._ended, commands, device, command))

    def abandon(self, command: Command) -> None:
        """As `Executor.abandon`."""
        task, device = self._tasks.get(command.id), self._connected.get(command.device)
        if task is None:
            return
        if device is not None and device.tasks.get(command.id) is task and command.id in self._begun:
            device.over.set()
        task.cancel()

    def _ended(self, commands: CommandPort, device: ConnectedDevice, command: Command, task: asyncio.Task[None]) -> None:
        """Report a command whose task was cancelled or failed: a command without an outcome would wait for ever."""
        unanswered = device.tasks.pop(command.id, None) is not None
        self._tasks.pop(command.id, None)
        begun = command.id in self._begun
        self._begun.discard(command.id)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _log.error("Bluetooth: command %s to %s: %r", command.id, command.device, error, exc_info=error)
        if task.cancelled() or error is not None:
            if begun and unanswered:
                device.over.set()
            (commands.lost if begun else commands.not_sent)(command.id)

    async def _run(
        self, commands: CommandPort, device: ConnectedDevice, rule: CommandRule, command: Command, data: bytes
    ) -> None:
        uuid = full_uuid(rule.characteristic)
        try:
            characteristic = characteristic_of(device.client, uuid)
        except BLUEZ_ERRORS as error:
            _log.info("Bluetooth: command %s to %s is not sent: %s", command.id, command.device, error_text(error))
            commands.not_sent(command.id)
            return
        if characteristic is None:
            commands.refused(command.id, f"the device has no characteristic {uuid}")
            return
        by_notification = rule.answer_characteristic
        answer = await device.next_notification(full_uuid(by_notification)) if by_notification is not None else None
        if command.deadline.is_ahead(beacon):
            await self._carry_out(commands, device, rule, command, _write(device.client, rule, characteristic, data, answer))
            return
        if answer is not None:  # it has waited for a read of that characteristic
            answer.cancel()
        commands.not_sent(command.id)

    async def _carry_out(
        self, commands: CommandPort, device: ConnectedDevice, rule: CommandRule, command: Command, write: Awaitable[Reply]
    ) -> None:
        """Write the command to its device, and report the result."""
        self._begun.add(command.id)
        try:
            reply = await write
        except BleakGATTProtocolError as error:
            code = int(error.code)
            if is_att_error(code):
                device.alive()
                reply = reply_of(code, error_text(error))
                if command.reply:
                    await self._reply(commands, device, command, reply)
                else:
                    commands.refused(command.id, reply.data.decode())
            else:
                self._failed(commands, device, command, "the link ended before the device answered")
        except BLUEZ_ERRORS as error:
            self._failed(commands, device, command, error_text(error))
        else:
            if rule.answer is not AnswerBy.NOTHING:
                device.alive()
            if rule.answer is AnswerBy.NOTHING and command.reply:
                self._lost(commands, command, "it is written without response, so its outcome is unknown")
            else:
                await self._reply(commands, device, command, reply)

    async def _reply(self, commands: CommandPort, device: ConnectedDevice, command: Command, reply: Reply) -> None:
        """Store the reply as soon as there is room for it. An answered command does not end with the connection."""
        device.tasks.pop(command.id, None)
        await answer_when_room(commands, command, reply)

    def _failed(self, commands: CommandPort, device: ConnectedDevice, command: Command, why: str) -> None:
        """End the connection too, so that no late notification is taken for the answer to the next command."""
        device.over.set()
        self._lost(commands, command, why)

    @staticmethod
    def _lost(commands: CommandPort, command: Command, why: str) -> None:
        _log.info("Bluetooth: command %s to %s: %s", command.id, command.device, why)
        commands.lost(command.id)


def is_att_error(code: int) -> bool:
    """Return True if the device sent this error. BlueZ reports 0x00 if the connection ended before a response."""
    return code != 0


def reply_of(code: int, meaning: str) -> Reply:
    """Return an ATT error response as a reply; the code is in its body."""
    status = 422 if code in _APPLICATION_ERRORS else _STATUS.get(code, 500)
    return Reply(status, f"ATT error 0x{code:02X}: {meaning}".encode(), _TEXT)


async def _write(
    client: BleakClient, rule: CommandRule, target: BleakGATTCharacteristic, data: bytes, answer: asyncio.Future[bytes] | None
) -> Reply:
    """Write, and return the device's answer: `answer` if the rule wants a notification, else its write response."""
    try:
        async with asyncio.timeout(rule.timeout_s):
            await client.write_gatt_char(target, data, response=rule.answer is not AnswerBy.NOTHING)
            return Reply(200, await answer, _OCTETS) if answer is not None else _WRITTEN
    finally:
        if answer is not None:
            answer.cancel()


async def _end(tasks: Iterable[asyncio.Task[None]]) -> None:
    ended = list(tasks)
    for task in ended:
        task.cancel()
    await asyncio.gather(*ended, return_exceptions=True)
