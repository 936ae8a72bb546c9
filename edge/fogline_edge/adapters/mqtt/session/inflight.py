"""Commands of one session in flight, by Packet Identifier (5: 2.2.1): pure."""

from enum import IntEnum

import msgspec

from fogline.commands.command import Deadline
from fogline_edge.adapters.mqtt.protocol.packets import Publish

MAX_KEPT_BYTES = 65_536
"""The most bytes of commands that a session record holds. A command beyond that is sent at QoS 1."""
_MAX_PACKET_ID = 65_535


class DeliveryPhase(IntEnum):
    """The progress of a command."""

    WAITING = 0
    KEEPING = 1  # the session record is being committed
    AGAIN = 2  # sent on a former connection, to be sent again
    SENT = 3
    ACCEPTED = 4  # PUBREC received
    RELEASED = 5  # PUBREL sent


class InflightCommand(msgspec.Struct, array_like=True):
    """One command, as the PUBLISH that carries it."""

    command_id: str
    device: str
    deadline: Deadline
    publish: Publish
    phase: DeliveryPhase = DeliveryPhase.WAITING


class InflightCommands:
    """Commands that are not fully acknowledged. `by_packet_id`: in sending order."""

    def __init__(self, by_packet_id: dict[int, InflightCommand] | None = None) -> None:
        self.by_packet_id = by_packet_id or {}
        self._last = max(self.by_packet_id, default=0)

    def packet_id_of(self, command_id: str) -> int | None:
        """Return the packet id that carries a command."""
        return next((packet_id for packet_id, each in self.by_packet_id.items() if each.command_id == command_id), None)

    def add(self, command: InflightCommand) -> None:
        """Assign a packet id that is not in use (5: 2.2.1)."""
        self._last = self._last % _MAX_PACKET_ID + 1
        while self._last in self.by_packet_id:
            self._last = self._last % _MAX_PACKET_ID + 1
        command.publish = msgspec.structs.replace(command.publish, packet_id=self._last)
        command.phase = DeliveryPhase.KEEPING
        self.by_packet_id[self._last] = command

    def kept(self) -> dict[int, InflightCommand]:
        """Return the commands that outlive their connection: those at QoS 2."""
        return {packet_id: each for packet_id, each in self.by_packet_id.items() if each.publish.qos == 2}

    def has_room(self, size_bytes: int) -> bool:
        """Return True if the session record has room for so many more bytes."""
        return sum(len(each.publish.payload) for each in self.kept().values()) + size_bytes <= MAX_KEPT_BYTES

    @property
    def busy(self) -> int:
        """Number of commands that count against the client's Receive Maximum."""
        return sum(each.phase is not DeliveryPhase.AGAIN for each in self.by_packet_id.values())
