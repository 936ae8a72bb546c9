"""The line to the device of `command_world`, as an adapter has to treat it: nothing leaves after a command's deadline.

A command waits in the adapter (`held`), in the socket of a line that stalls (`stalled`), or at QoS 2 at the device, which
begins at PUBREL (`published`). The device runs what reaches it, and `late` has what reached it after its deadline.
"""

from fogline.commands.command import Command


class DeviceLine:
    """The adapter's side of the line, and the device's. It outlives the gateway's process, as an MQTT session does."""

    def __init__(self, world) -> None:
        self.world = world
        self.commands: dict[str, Command] = {}
        self.held: list[str] = []
        self.stalled: list[str] = []
        self.published: list[str] = []
        self.late: list[str] = []
        self.overtaken: set[str] = set()  # exchanges of a former run of the gateway, which later commands may overtake

    def execute(self, command: Command) -> None:
        self.commands[command.id] = command
        if command.id not in self.published:  # else the exchange goes on
            self.held.append(command.id)

    def abandon(self, command: Command) -> None:
        """Discard all bytes of a command at its deadline, as an adapter does that is told to."""
        if command.id in self.held:
            self.held.remove(command.id)
            self.world.gateway.downlink.not_sent(command.id)
        for each in (self.stalled, self.published):
            if command.id in each:
                each.remove(command.id)

    def take(self) -> str | None:
        """Take the oldest command out of the adapter, which does not send one that is past its deadline."""
        while self.held and self._is_past(self.held[0]):
            self.world.loop.call(self.world.gateway.downlink.not_sent, self.held.pop(0))
        return self._next(self.held)

    def stall(self) -> None:
        """The adapter writes its oldest command to a socket whose line stalls."""
        if (command_id := self.take()) is not None:
            self.stalled.append(command_id)

    def flow(self) -> None:
        """The line goes on: what waits in the socket reaches the device, unless the kernel has discarded it."""
        while (command_id := self._next(self.stalled)) is not None:
            if self._is_open(command_id) or not self._is_past(command_id):
                self.begin(command_id)

    def publish(self) -> None:
        """The device gets PUBLISH of the oldest command at QoS 2. It holds the command until PUBREL."""
        if (command_id := self.take()) is not None:
            self.published.append(command_id)

    def release(self) -> None:
        """The adapter sends PUBREL of the oldest exchange, and the device begins."""
        command_id = self._next(self.published) if self.world.reachable else None
        if command_id is not None and (self._is_open(command_id) or not self._is_past(command_id)):
            self.begin(command_id)

    def begin(self, command_id: str) -> None:
        """The device runs a command."""
        world = self.world
        world.effects[command_id] += 1
        world.done.append(command_id)
        world.at_device.append(command_id)
        if self._is_past(command_id):
            self.late.append(command_id)

    def restart(self) -> None:
        """The gateway's process ends: its sockets are reset, and the session keeps the exchanges that are in time."""
        self.held.clear()
        self.stalled.clear()
        self.overtaken |= set(self.published)

    def end_connection(self) -> None:
        """The device's connection ends: what waits in its socket is lost."""
        lost, self.stalled = self.stalled, []
        for command_id in lost:
            self.world.loop.call(self.world.gateway.downlink.lost, command_id)

    def resume(self) -> None:
        """The device connects again: a session with an exchange that is past its deadline is over."""
        self.published = [each for each in self.published if not self._is_past(each)]

    def _next(self, source: list[str]) -> str | None:
        if not source:
            return None
        self.world.in_doubt.add(source[0])
        return source.pop(0)

    def _is_past(self, command_id: str) -> bool:
        return self.commands[command_id].deadline.left_ms(self.world.gateway.beacon()) <= 0

    def _is_open(self, command_id: str) -> bool:
        """Return True if the gateway follows the command, so that it tells the adapter of its deadline."""
        return self.world.gateway.downlink._runner.commands.get(command_id) is not None
