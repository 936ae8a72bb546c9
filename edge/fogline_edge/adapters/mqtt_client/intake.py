"""Reads a broker's message by its profile: pure, and never an error. An unacceptable message becomes a dead letter."""

from dataclasses import dataclass

import msgspec

from fogline.dead_letter import dead_letter
from fogline.errors import Poison
from fogline.events.event import Arrival
from fogline.events.identity import Retransmission
from fogline_edge.profiles.profile import ADAPTER, BrokerMessage, Profile, Reading

_SHOWN_BYTES = 65_536  # the most bytes of a message in its dead letter


@dataclass(frozen=True, slots=True)
class BrokerIntake:
    """Reads messages by `profile`. `gateway` and `sender` are named in its dead letters."""

    profile: Profile
    gateway: str
    sender: str
    max_payload_bytes: int

    def read(self, message: BrokerMessage, retransmission: Retransmission | None) -> Reading:
        """Return an arrival that can be put as it is, or the reason to ignore the message, or learned names."""
        try:
            reading = self.profile.read(message)
            if isinstance(reading, Arrival):
                self._check(message)
                reading = msgspec.structs.replace(reading, retransmission=retransmission)
        except Poison as error:
            return dead_letter(
                error,
                gateway=self.gateway,
                adapter=ADAPTER,
                sender=self.sender,
                channel=message.topic,
                data=message.payload[:_SHOWN_BYTES],
                retransmission=retransmission,
            )
        return reading

    def _check(self, message: BrokerMessage) -> None:
        size = len(message.payload)
        if size > self.max_payload_bytes:
            raise Poison("too-big", f"{size} bytes exceed max_payload_bytes = {self.max_payload_bytes}; this is the start")
