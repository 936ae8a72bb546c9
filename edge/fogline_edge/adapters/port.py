"""What an adapter is given: one place to put what arrived."""

from collections.abc import Callable
from typing import Protocol

from fogline.event import Arrival, Receipt


class Port(Protocol):
    """The durable side, as adapters see it. Everything here is called on the event loop and never blocks it."""

    @property
    def tenant(self) -> str:
        """The tenant that every device of this gateway belongs to."""

    @property
    def gateway(self) -> str:
        """This gateway's name."""

    def put(self, arrival: Arrival, done: Callable[[Receipt], None]) -> None:
        """Store `arrival`; `done` is called once, on the loop, after the commit that made it durable.

        While there is no room the call to `done` stays out, and so must the device's acknowledgement. If the process
        ends first, `done` is never called. Raises `SlowDown` if too much waits already: then nothing was taken, and
        the adapter stops reading until `when_room` calls.
        """

    def when_room(self, call: Callable[[], None]) -> None:
        """Call `call` once, on the loop, when `put` takes arrivals again (at the next turn if it does now)."""
