"""Commands to devices that are connected: each is a write to a characteristic, and what the device says to that."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from bleak import BleakClient
from bleak.backends.characteristic import BleakGATTCharacteristic
from bleak.exc import BleakGATTProtocolError

from fogline.command import Answer, Command
from fogline.errors import Poison, SlowDown
from fogline.event import Receipt
from fogline_edge.adapters.ble.answers import WRITTEN, answer_of, is_answer
from fogline_edge.adapters.ble.counters import Counters
from fogline_edge.adapters.ble.gatt import characteristic_of
from fogline_edge.adapters.ble.radio import BLUEZ_ERRORS, shown
from fogline_edge.adapters.port import Commands
from fogline_edge.profiles.ble import AnswerBy, BleProfile, CommandRule, full_uuid
from fogline_edge.profiles.ble_values import encode_value

_OCTETS = "application/octet-stream"
_log = logging.getLogger(__name__)


@dataclass(eq=False)
class Line:
    """A link as commands see it. `over` is set when it ends, or is to end. `tasks`: the commands that it ends.

    `alive` is called whenever the device shows that it is there.
    """

    client: BleakClient
    profile: BleProfile
    over: asyncio.Event
    alive: Callable[[], None]
    tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _awaited: dict[str, asyncio.Future[bytes]] = field(default_factory=dict)
    _reading: str | None = None
    _read: asyncio.Event = field(default_factory=asyncio.Event)

    def told(self, characteristic: str, value: bytes) -> None:
        """The device notified; perhaps that is what a command waits for."""
        self.alive()
        waiting = self._awaited.get(characteristic)
        if waiting is not None and not waiting.done():
            waiting.set_result(value)

    def awaits(self, characteristic: str) -> bool:
        """Whether a command waits for its next notification: BlueZ's echo of a read would be taken for that."""
        waiting = self._awaited.get(characteristic)
        return waiting is not None and not waiting.done()

    @contextmanager
    def reading(self, characteristic: str) -> Iterator[None]:
        """While the block runs it is read. Not more than one at once."""
        self._reading = characteristic
        self._read.clear()
        try:
            yield
        finally:
            self._reading = None
            self._read.set()

    async def await_answer(self, characteristic: str) -> asyncio.Future[bytes]:
        """The next notification of a characteristic, to be cancelled in the end; waits while it is read."""
        while self._reading == characteristic:
            await self._read.wait()
        waiting = self._awaited[characteristic] = asyncio.get_running_loop().create_future()
        return waiting


class Writing:
    """An `Executor`. `commands` may be `None`: then nothing is carried."""

    def __init__(self, commands: Commands | None, counters: Counters) -> None:
        self._commands = commands
        self._counters = counters
        self._loop = asyncio.get_running_loop()
        self._lines: dict[str, Line] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._begun: set[str] = set()

    def up(self, device: str, line: Line) -> None:
        """A device is connected: it takes commands, if its profile has any."""
        if self._commands is not None and line.profile.commands and not line.over.is_set():
            self._lines[device] = line
            self._commands.reachable(device, self)

    async def down(self, device: str, line: Line) -> None:
        """Its link has ended; what is under way is lost."""
        if self._lines.get(device) is line:
            del self._lines[device]
            if self._commands is not None:
                self._commands.unreachable(device, self)
        await _end(line.tasks.values())

    async def close(self) -> None:
        """No command is under way afterwards. Safe to call twice."""
        await _end(self._tasks.values())

    def execute(self, command: Command) -> None:
        """As `Executor.execute`."""
        commands, line = self._commands, self._lines.get(command.device)
        if commands is None:
            return
        if line is None or line.over.is_set():
            commands.not_sent(command.id)
            return
        rule = next((each for each in line.profile.commands if each.name == command.name), None)
        if rule is None:
            names = ", ".join(each.name for each in line.profile.commands)
            commands.refused(command.id, f"profile {line.profile.name} has no command {command.name}; it has {names}")
            return
        try:
            data = encode_value(rule.encoding, command.data)
        except Poison as error:
            commands.refused(command.id, str(error))
            return
        self._counters.commands += 1
        task = self._loop.create_task(self._run(commands, line, rule, command, data), name=f"ble command {command.id}")
        line.tasks[command.id] = self._tasks[command.id] = task
        task.add_done_callback(partial(self._ended, commands, line, command))

    def abandon(self, command: Command) -> None:
        """As `Executor.abandon`."""
        task, line = self._tasks.get(command.id), self._lines.get(command.device)
        if task is None:
            return
        if line is not None and line.tasks.get(command.id) is task and command.id in self._begun:
            line.over.set()
        task.cancel()

    def _ended(self, commands: Commands, line: Line, command: Command, task: asyncio.Task[None]) -> None:
        """Whatever ended it, it is told how it went: a command that nobody ends waits for ever."""
        unanswered = line.tasks.pop(command.id, None) is not None
        self._tasks.pop(command.id, None)
        begun = command.id in self._begun
        self._begun.discard(command.id)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _log.error("Bluetooth: command %s to %s: %r", command.id, command.device, error, exc_info=error)
        if task.cancelled() or error is not None:
            if begun and unanswered:
                line.over.set()
            (commands.lost if begun else commands.not_sent)(command.id)

    async def _run(self, commands: Commands, line: Line, rule: CommandRule, command: Command, data: bytes) -> None:
        """Write it, and tell how it went: what the device did not answer is lost."""
        uuid = full_uuid(rule.characteristic)
        try:
            characteristic = characteristic_of(line.client, uuid)
        except BLUEZ_ERRORS as error:
            _log.info("Bluetooth: command %s to %s is not sent: %s", command.id, command.device, shown(error))
            commands.not_sent(command.id)
            return
        if characteristic is None:
            commands.refused(command.id, f"the device has no characteristic {uuid}")
            return
        by_notification = rule.answer_characteristic
        answer = await line.await_answer(full_uuid(by_notification)) if by_notification is not None else None
        self._begun.add(command.id)
        try:
            said = await _write(line.client, rule, characteristic, data, answer)
        except BleakGATTProtocolError as error:
            code = int(error.code)
            if is_answer(code):
                line.alive()
                await self._refused(commands, line, command, answer_of(code, shown(error)))
            else:
                self._failed(commands, line, command, "the link ended before the device answered")
        except BLUEZ_ERRORS as error:
            self._failed(commands, line, command, shown(error))
        else:
            if rule.answer is not AnswerBy.NOTHING:
                line.alive()
            if rule.answer is AnswerBy.NOTHING and command.reply:
                self._lost(commands, command, "it is written without a response: nobody knows")
            else:
                await self._tell(commands, line, command, said)

    async def _tell(self, commands: Commands, line: Line, command: Command, answer: Answer) -> None:
        """As soon as there is room for it: what the device has answered does not end with the link."""
        line.tasks.pop(command.id, None)
        if not command.reply:
            commands.taken(command.id)
            return
        while True:
            try:
                commands.answer(command.device, command.id, answer, _nobody_waits)
            except SlowDown as error:
                await asyncio.sleep(error.retry_after_s)
            else:
                return

    async def _refused(self, commands: Commands, line: Line, command: Command, answer: Answer) -> None:
        """The device said no: it has not done it."""
        if command.reply:
            await self._tell(commands, line, command, answer)
        else:
            commands.refused(command.id, answer.data.decode())

    def _failed(self, commands: Commands, line: Line, command: Command, why: str) -> None:
        """Nobody knows what became of it, and the link is made anew.

        What is repeated waits for that, and what the device says too late is not taken for the answer to the next command.
        """
        line.over.set()
        self._lost(commands, command, why)

    @staticmethod
    def _lost(commands: Commands, command: Command, why: str) -> None:
        _log.info("Bluetooth: command %s to %s: %s", command.id, command.device, why)
        commands.lost(command.id)


async def _write(
    client: BleakClient,
    rule: CommandRule,
    characteristic: BleakGATTCharacteristic,
    data: bytes,
    answer: asyncio.Future[bytes] | None,
) -> Answer:
    """Returns what the device says to it: `answer`, its notification, or its response to the write."""
    try:
        async with asyncio.timeout(rule.timeout_s):
            await client.write_gatt_char(characteristic, data, response=rule.answer is not AnswerBy.NOTHING)
            return Answer(200, await answer, _OCTETS) if answer is not None else WRITTEN
    finally:
        if answer is not None:
            answer.cancel()


async def _end(tasks: Iterable[asyncio.Task[None]]) -> None:
    ended = list(tasks)
    for task in ended:
        task.cancel()
    await asyncio.gather(*ended, return_exceptions=True)


def _nobody_waits(receipt: Receipt) -> None:
    """The device was answered by its own protocol already."""
