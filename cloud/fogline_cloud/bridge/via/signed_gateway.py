"""One gateway behind a router or a broker, as if it had a connection of its own: the same quotas, limits and ends."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from fogline.amqp.events import Delivery, Link
from fogline.amqp.outcome import ACCEPTED, RESOURCE_LIMIT, Condition, Outcome, rejected
from fogline.amqp.scheduler import Share
from fogline.events.event import Lane
from fogline.gateway.settlement import SILENCE_S
from fogline.gateway.signed_session import SignedIntake
from fogline_cloud.bridge.peers.peer import GatewayPeer
from fogline_cloud.bridge.via.control_line import ControlLine
from fogline_cloud.bridge.via.intermediary import Intermediary


@dataclass(eq=False, slots=True)
class SignedDelivery(Delivery):
    """A message of a gateway. `native`: the delivery of the router's or broker's link. `number`: 0 for a hello."""

    number: int = 0


class SignedGateway:
    """The connection of a gateway, as its peer uses it, from a hello to the next one. Used on the loop.

    `on_end` is called once, with the reason: the gateway or this bridge has ended it, or no message came for `silence_s`.
    """

    def __init__(
        self,
        via: Intermediary,
        intake: SignedIntake,
        control: ControlLine,
        on_end: Callable[["SignedGateway", str], None],
        silence_s: float = SILENCE_S,
    ) -> None:
        self.via, self.intake, self.control = via, intake, control
        self.peer: GatewayPeer | None = None
        self.ended = False
        self._on_end = on_end
        self._silence_s = silence_s
        self._links = {lane: Link(lane.value, "", False, {"lane": lane.value}, None) for lane in Lane}
        self._in_work = dict.fromkeys(Lane, 0)
        self._is_paused = False
        self._loop = asyncio.get_running_loop()
        self._heard_s = self._loop.time()
        self._timer = self._loop.call_later(silence_s, self._look)

    def heard(self) -> None:
        """Note a message of the gateway that counts."""
        self._heard_s = self._loop.time()

    def delivery(self, native: Delivery, number: int, lane: Lane) -> SignedDelivery:
        """Return a message as the peer settles it."""
        return SignedDelivery(self._links[lane], native, number=number)

    def has_room(self, lane: Lane) -> bool:
        """Count a batch until it is settled. Return False for one beyond its lane's window or the bytes that may wait."""
        self._in_work[lane] += 1
        return not self._is_paused and self._in_work[lane] <= self.control.window(lane)

    def refuse(self, delivery: SignedDelivery) -> None:
        """Refuse a batch for which there is no room: the gateway sends it again later."""
        self.settle(delivery, rejected(RESOURCE_LIMIT, "the gateway sends more than it may"), credit=1)

    def _look(self) -> None:
        left_s = self._heard_s + self._silence_s - self._loop.time()
        if left_s > 0:
            self._timer = self._loop.call_later(left_s, self._look)
        else:
            self.end(f"no message came for {self._silence_s:.0f} s", "")

    def end(self, why: str, told: str) -> None:
        """End it. `told`: what the gateway is told, "" for nothing."""
        if self.ended:
            return
        self.ended = True
        self._timer.cancel()
        self.control.close(told)
        self._loop.call_soon(self._on_end, self, why)  # the caller may still use the peer

    # --- the part of a connection that a gateway's peer uses

    def accept_link(
        self, link: Link, *, credit: int = 0, share: Share | None = None, on_credit: Callable[[], None] = lambda: None
    ) -> None:
        """See `PeerConnection`. Never called: a gateway behind a router attaches no links here."""

    def refuse_link(self, link: Link, condition: Condition) -> None:
        """See `PeerConnection`. Never called: a gateway behind a router attaches no links here."""

    def settle(self, delivery: Delivery, outcome: Outcome, credit: int = 0) -> None:
        """See `PeerConnection`. The gateway gets the outcome signed; what is between learns that the message was taken."""
        assert isinstance(delivery, SignedDelivery)
        if delivery.done:
            return
        delivery.done = True
        self.via.settle(delivery.native, ACCEPTED)
        if not delivery.number or self.ended:
            return
        lane = Lane(delivery.link.name)
        self._in_work[lane] -= 1
        self.control.settle(delivery.number, outcome)
        if not credit:
            self.control.owe(lane, 1)

    def grant(self, link: Link, credit: int) -> None:
        """See `PeerConnection`. Let the gateway send as many batches more again."""
        self.control.owe(Lane(link.name), -credit)

    def pause_reading(self) -> None:
        """Refuse batches: others share the link."""
        self._is_paused = True

    def resume_reading(self) -> None:
        """Take batches again."""
        self._is_paused = False

    def close(self, condition: Condition | None = None) -> None:
        """End it, and tell the gateway."""
        why = str(condition or "the bridge ends the connection")
        self.end(f"closed from this side: {why}", why)

    def abort(self) -> None:
        """End it, and tell nobody."""
        self.end("aborted", "")
