"""One connection as a carrier of commands: what dispatch knows it by."""

from collections.abc import Callable, Sequence

from fogline.command import Command
from fogline_edge.adapters.mqtt.effects import Effect, Then
from fogline_edge.adapters.mqtt.session import Session


class Outlet:
    """As `Carrier`. `perform`: does what comes of it."""

    def __init__(self, session: Session, perform: Callable[[Sequence[Effect]], None]) -> None:
        self._session = session
        self._perform = perform
        self._stopped = False

    def execute(self, command: Command) -> None:
        """As `Carrier.execute`."""
        self._perform(self._session.downstream.execute(command))

    def abandon(self, command_id: str) -> bool:
        """As `Carrier.abandon`."""
        downstream = self._session.downstream
        if not downstream.carries(command_id):
            return False
        self._perform(downstream.abandon(command_id))
        return True

    def go_on(self, then: Then) -> None:
        """As `Carrier.go_on`."""
        if not self._stopped:
            self._perform(then())

    def stop(self) -> None:
        """The connection is over: go on with nothing."""
        self._stopped = True
