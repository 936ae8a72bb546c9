"""Executes the command `fogline-history`: replies with a page of the events that rules kept back."""

import asyncio
from pathlib import Path

import msgspec

from fogline.commands.command import Command, Reply
from fogline.commands.history import HISTORY, read_query
from fogline.errors import Misconfigured, Poison
from fogline.process.cancellation import end_tasks
from fogline_edge.adapters.port import CommandPort, answer_when_room
from fogline_edge.history.history_pages import read_history_page


class HistoryReader:
    """An `Executor` for the gateway itself, with the history in `folder`. `keeps`: some rule has `keep_days`."""

    def __init__(self, commands: CommandPort, folder: Path, *, keeps: bool) -> None:
        self._commands = commands
        self._folder = folder
        self._keeps = keeps
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def execute(self, command: Command) -> None:
        """See `Executor.execute`."""
        task = self._tasks[command.id] = asyncio.create_task(self._reply(command), name=HISTORY)
        task.add_done_callback(lambda _: self._tasks.pop(command.id, None))

    def abandon(self, command: Command) -> None:
        """See `Executor.abandon`."""
        if (task := self._tasks.get(command.id)) is not None:
            task.cancel()
            self._commands.not_sent(command.id)  # nothing has been stored, and to read changes nothing

    async def close(self) -> None:
        """Give up the commands in progress. The journal keeps them for the next start."""
        await end_tasks(*self._tasks.values())

    async def _reply(self, command: Command) -> None:
        if not self._keeps:
            why = f"gateway {command.gateway} keeps no history: no rule of [[rules.reduce]] in its edge.toml has keep_days"
            self._commands.refused(command.id, why)
            return
        try:
            query = read_query(command.data)
            page = await asyncio.to_thread(read_history_page, self._folder, command.device, query)
        except Poison as error:
            self._commands.refused(command.id, str(error))
        except Misconfigured as error:  # the file is damaged
            await answer_when_room(self._commands, command, Reply(500, str(error).encode(), "text/plain"))
        else:
            reply = Reply(200, msgspec.json.encode(page), "application/json")
            await answer_when_room(self._commands, command, reply)
