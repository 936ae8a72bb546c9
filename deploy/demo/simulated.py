"""What all simulated devices have in common, whatever they speak."""

from typing import NamedTuple, Protocol

from demo.payload import Device

ANSWER = b'{"done": true}'
"""What a device answers to a command."""


class Answered(NamedTuple):
    """A message with its end: the device's counter, whether it was acknowledged (`None`: nobody knows), how long it took."""

    n: int
    success: bool | None
    took_s: float


class Simulated(Protocol):
    """One device. `outstanding`: beyond so many messages without acknowledgement it measures nothing more."""

    outstanding: int
    device: Device
    connections: int
    connected: bool
    sent: int

    @property
    def waiting(self) -> int:
        """Messages without acknowledgement."""

    def connect(self) -> None:
        """Begin."""

    def publish(self, body: bytes, now: float) -> None:
        """Send the next message, which is the `sent`-th."""

    def take_answers(self) -> list[Answered]:
        """What has had its end since."""

    def lose_line(self) -> None:
        """Something is lost on the way."""

    def give_up(self) -> None:
        """Wait for no acknowledgement any more that may never come."""

    def close(self) -> None:
        """Leave."""
