"""The connections whose peers have not been let in yet: bounded in number and by address, and in what they send."""

from functools import partial
from typing import Final

from fogline.amqp.driver import AmqpConnection, Handler
from fogline.amqp.outcome import RESOURCE_LIMIT, Condition
from fogline.transport.byte_budget import ByteAccount, ByteBudget
from fogline.transport.unnamed_sockets import UnnamedSockets
from fogline_cloud.access.principal import ASSERTED, Principal
from fogline_cloud.bridge.door.authentication import Authentication

MAX_HANDSHAKES: Final = 500
"""Connections within the handshake. Beyond that, the oldest one of the address that has most is cut off."""
UNFINISHED_BYTES: Final = 128 * 1024 * 1024
"""The bytes of unfinished messages of all connections."""
_NO_ROOM = Condition(RESOURCE_LIMIT, "there is no room for the peer's unfinished messages")


class Handshakes:
    """Makes the connections of a listener, and counts what their peers send that is not a whole message. Used on the loop."""

    def __init__(self, authentication: Authentication) -> None:
        self.cut_off = 0
        """Connections that had to make room for another one within their handshake."""
        self.budget = ByteBudget(UNFINISHED_BYTES)
        self._authentication = authentication
        self._waiting = UnnamedSockets[AmqpConnection]()
        self._accounts: dict[AmqpConnection, ByteAccount] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def connection(self, handler: Handler, *, websocket: bool = False) -> AmqpConnection:
        """Return a new connection, for a socket that was accepted. `websocket`: see `Authentication.connection`."""
        account = self.budget.open("", lambda: connection.close(_NO_ROOM, heed=False))
        connected = partial(self._connected, account)
        connection = self._authentication.connection(handler, account.hold, connected, websocket=websocket)
        return connection

    def _connected(self, account: ByteAccount, connection: AmqpConnection, address: str) -> None:
        account.owner = address
        self._accounts[connection] = account
        if len(self._waiting) >= MAX_HANDSHAKES and (first := self._waiting.first_to_go()) is not None:
            self._waiting.discard(first)
            self.cut_off += 1
            first.abort("too many connections are within their handshake")
        self._waiting.add(connection, address)

    def let_in(self, connection: AmqpConnection, principal: Principal) -> None:
        """Note that a peer was let in."""
        self._waiting.discard(connection)
        account = self._accounts[connection]
        account.admit(account.owner if principal.proof == ASSERTED else str(principal))

    def closed(self, connection: AmqpConnection) -> None:
        """Forget a connection that has ended."""
        self._waiting.discard(connection)
        if (account := self._accounts.pop(connection, None)) is not None:
            account.close()
