"""A session: what the gateway keeps of a client that has proved its key. Pure."""

from collections.abc import Callable
from typing import NamedTuple

from fogline_edge.adapters.coap.dtls.cipher_suites import RecordProtection
from fogline_edge.adapters.coap.dtls.replay_window import ReplayWindow
from fogline_edge.adapters.coap.wire import Endpoint


class SessionEndpoint(NamedTuple):
    """The endpoint of CoAP messages in a session (RFC 7252, section 9.1.1). `host`: `dtls/` and the device's name.

    The number is random, so that no two sessions have one endpoint, also after a restart.
    """

    host: str
    port: int

    @property
    def device(self) -> str:
        """The device that has proved its key."""
        return self.host.partition("/")[2]


class Session:
    """One session. `address`: where records to the client go. `key_number`: of the device's key that was proved."""

    __slots__ = ("address", "endpoint", "key_number", "last_s", "protection", "repeat", "window")

    def __init__(
        self,
        endpoint: SessionEndpoint,
        address: Endpoint,
        *,
        key_number: int,
        protection: RecordProtection,
        repeat: Callable[[], bytes],
        now_s: float,
    ) -> None:
        self.endpoint = endpoint
        self.address = address
        self.key_number = key_number
        self.protection = protection
        self.window = ReplayWindow()
        self.repeat: Callable[[], bytes] | None = repeat
        """Makes the last flight of the handshake again, until the client has shown that it has it."""
        self.last_s = now_s
        """Time of the client's last record."""
