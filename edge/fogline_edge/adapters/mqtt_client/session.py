"""A session at the broker: which of its messages may have been here before. Pure.

A broker marks as DUP what it sends again after a reconnect, also what was lost before it reached us. A packet id alone says
little, since after 65,535 messages it is another one's. But messages are acknowledged in order, and only a window of them is
under way (a few times our Receive Maximum: Mosquitto 2 counts it anew at each reconnect). So a DUP whose id has not come
within the last `WINDOW` messages is a new message, even if it says the same as an old one.

Only after a restart of the gateway, until so many came, nobody knows; then the outbox decides by id and content.
"""

from fogline.identity import Retransmission

WINDOW = 16_384
"""Far more than are ever under way, and far less than there are packet ids."""


class Session:
    """One session. `place` names it for ever: broker, client id and a nonce, since ids start anew with each session.

    `fresh`: it was just made, so that nothing came before this object was there.
    """

    def __init__(self, place: bytes, *, fresh: bool) -> None:
        self._place = place
        self._fresh = fresh
        self._recent: dict[int, None] = {}

    def came(self, packet_id: int, *, dup: bool) -> Retransmission:
        """A message came: what is known of it as a resend."""
        known = self._fresh or len(self._recent) >= WINDOW
        again = dup and (packet_id in self._recent or not known)
        self._recent.pop(packet_id, None)
        self._recent[packet_id] = None
        if len(self._recent) > WINDOW:
            del self._recent[next(iter(self._recent))]
        return Retransmission(self._place, again, number=packet_id)
