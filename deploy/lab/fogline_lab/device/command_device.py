"""A device that runs commands, on a port of commands in this process."""

import asyncio

from fogline.commands.command import Command, Reply
from fogline_edge.adapters.port import CommandPort
from fogline_lab.amqp import within

OK = Reply(200, b'{"ok":true}', "application/json")


class CommandDevice:
    """An executor (`fogline_edge.adapters.port.Executor`) that records its commands, and replies to each with `answer`.

    It never replies without `commands`, or with `answer=None`. With `tell = "lost"` it reports each command as lost.
    `ran`: the ids of the commands, in order. `came`: set by each command. `abandoned`: the ids of abandoned commands.
    """

    def __init__(self, commands: CommandPort | None = None, name: str = "lamp-1", answer: Reply | None = OK) -> None:
        self.commands = commands
        self.name = name
        self.answer = answer
        self.ran: list[str] = []
        self.abandoned: list[str] = []
        self.came = asyncio.Event()
        self.tell = "answer"
        self._more = asyncio.Event()

    def execute(self, command: Command) -> None:
        """Record a command, and reply to it."""
        self.ran.append(command.id)
        self.came.set()
        self._more.set()
        if self.commands is None:
            return
        if self.tell == "lost":
            self.commands.lost(command.id)
        elif self.answer is not None:
            self.commands.answer(self.name, command.id, self.answer, lambda _: None)

    def abandon(self, command: Command) -> None:
        """Record that no result is awaited."""
        self.abandoned.append(command.id)

    async def has(self, count: int, limit_s: float = 60.0) -> list[str]:
        """Wait for `count` commands. Returns the ids of all."""

        async def wait() -> None:
            while len(self.ran) < count:
                self._more.clear()
                await self._more.wait()

        await within(wait(), f"the device does not get {count} commands: {self.ran}", limit_s)
        return self.ran
