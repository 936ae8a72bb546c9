"""A lamp that keeps its desired states."""

import json

from fogline.commands.command import Reply
from fogline_lab.device.command_device import CommandDevice


class Lamp(CommandDevice):
    """A device that keeps the states that it was told."""

    def __init__(self, commands, answer: Reply | None = Reply(204)):  # noqa: B008 - a value
        super().__init__(commands, answer=answer)
        self.states: list[dict] = []

    def execute(self, command):
        self.states.append(json.loads(command.data))
        super().execute(command)
