"""A message of the broker to what has to be done about it: pure, and never an error. What cannot be taken is a dead letter."""

import msgspec

from fogline.dead import dead_letter
from fogline.errors import Poison
from fogline.event import Arrival
from fogline.identity import Retransmission
from fogline_edge.profiles.profile import ADAPTER, Message, Profile, Reading

_SHOWN_BYTES = 65_536
"""How much of a message that is too big its dead letter holds."""


class Intake:
    """Reads by `profile`. `sender`: who stands in a dead letter as its sender. `gateway`: whose dead letters these are."""

    def __init__(self, profile: Profile, gateway: str, *, sender: str, max_payload_bytes: int) -> None:
        self._profile = profile
        self._gateway = gateway
        self._sender = sender
        self._max_payload_bytes = max_payload_bytes

    def read(self, message: Message, retransmission: Retransmission | None) -> Reading:
        """An arrival that can be put as it is, something to pass over, or names."""
        try:
            reading = self._profile.read(message)
            if isinstance(reading, Arrival):
                self._check(message)
                reading = msgspec.structs.replace(reading, retransmission=retransmission)
        except Poison as error:
            return dead_letter(
                error,
                gateway=self._gateway,
                adapter=ADAPTER,
                sender=self._sender,
                channel=message.topic,
                data=message.payload[:_SHOWN_BYTES],
                retransmission=retransmission,
            )
        return reading

    def _check(self, message: Message) -> None:
        size = len(message.payload)
        if size > self._max_payload_bytes:
            raise Poison("too-big", f"{size} bytes are over max_payload_bytes = {self._max_payload_bytes}; this is the start")
