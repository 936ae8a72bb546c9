"""Interface of a simulated device, for any protocol."""

from typing import NamedTuple, Protocol

from demo.payload import Device

ANSWER = b'{"done": true}'
"""Answer of a device to a command."""


class Answered(NamedTuple):
    """Result of a message: counter, acknowledged or not (`None`: unknown), the seconds that it took, and when it came.

    `at_s`: on the monotonic clock, which all processes of a machine share.
    """

    n: int
    success: bool | None
    took_s: float
    at_s: float


class Simulated(Protocol):
    """One device. `outstanding`: the most messages without acknowledgement; beyond, it sends no more."""

    outstanding: int
    device: Device
    connections: int
    connected: bool
    sent: int

    @property
    def waiting(self) -> int:
        """Messages without acknowledgement."""

    def connect(self) -> None:
        """Connect."""

    def publish(self, body: bytes, now: float) -> None:
        """Send the next message, number `sent`."""

    def take_answers(self) -> list[Answered]:
        """Return the results since the last call."""

    def lose_line(self) -> None:
        """Lose the connection."""

    def give_up(self) -> None:
        """Give up all acknowledgements that may never come."""

    def close(self) -> None:
        """Disconnect."""
