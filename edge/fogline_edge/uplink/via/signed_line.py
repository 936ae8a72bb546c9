"""The signed messages of one connection behind a router or a broker, both ways."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import msgspec

from fogline.amqp.outcome import Outcome
from fogline.amqp.sending import Sender
from fogline.errors import Poison
from fogline.events.event import Lane
from fogline.gateway.hello import Welcome, decode_welcome
from fogline.gateway.message_signature import SignedKind, doubt_signature
from fogline.gateway.settlement import (
    BEACON_S,
    LANE_CREDIT,
    SETTLEMENT_CONTENT_TYPE,
    SILENCE_S,
    SignedOutcomes,
    decode_settlement,
)
from fogline.gateway.signed_session import CERTIFICATE, CHALLENGE, EPOCH, GATEWAY, NUMBER, SignedIntake, SignedOutput
from fogline.message import Message, Property
from fogline.process.log_throttle import LogThrottle
from fogline_edge.uplink.via.identity import GatewayIdentity
from fogline_edge.uplink.via.reports import SignedReports
from fogline_edge.uplink.via.signed_sender import LaneWindow, SignedSender

TTL_MS = 30_000
"""Time after which a broker need not keep a hello: while no bridge is there, its gateways say it again and again."""

_log = logging.getLogger("fogline.uplink.unsigned")
_log.addFilter(LogThrottle())


class SignedLine:
    """The signed messages of one connection. Used on the loop. `end` is called with the reason if the connection is of no use.

    `epoch`: of its hello. Nothing counts that a bridge of this tenant has not signed for this gateway and this epoch.
    """

    def __init__(self, identity: GatewayIdentity, epoch: str, end: Callable[[str], None]) -> None:
        self.refused = 0
        """Messages that did not count."""
        self.epoch = epoch
        self._identity, self._end = identity, end
        self._output = SignedOutput(identity.name, epoch, identity.signer)
        self.reports = SignedReports(self._output, end)
        self._intake: SignedIntake | None = None
        self._windows = {lane: LaneWindow(LANE_CREDIT) for lane in Lane}
        self._windows_of = 0  # the number of the message that had them
        self._senders: list[SignedSender] = []
        self._loop = asyncio.get_running_loop()
        self._heard_s = self._loop.time()

    # --- hello

    def hello(self, message: Message, challenge: str) -> Message:
        """Return a signed hello. `challenge`: that of the bridge, "" before there is one."""
        name = self._identity.name
        own: dict[str, Property] = {CERTIFICATE: self._identity.certificate, EPOCH: self.epoch, GATEWAY: name.gateway}
        if challenge:
            own[CHALLENGE] = challenge
        return self._identity.signer.sign(
            SignedKind.HELLO, name, msgspec.structs.replace(message, properties=own, ttl_ms=TTL_MS)
        )

    def welcome(self, message: Message) -> Welcome | None:
        """Return an answer to the present hello, and note the key of its bridge; None if it does not count."""
        try:
            key = self._checked_key(message)
            welcome = decode_welcome(message.body)
        except Poison as error:
            self.refused += 1
            _log.warning("an answer to hello does not count: %s", error)
            return None
        self._intake = SignedIntake(self._identity.name, self.epoch, key)
        self._heard_s = self._loop.time()
        return welcome

    def _checked_key(self, message: Message) -> Any:
        if message.properties.get(EPOCH) != self.epoch:
            raise Poison("not-authorised", "it is of another connection")
        key = self._identity.bridge_key(message.properties.get(CERTIFICATE))
        if (why := doubt_signature(key, SignedKind.WELCOME, self._identity.name, message)) is not None:
            raise Poison("not-authorised", why)
        return key

    # --- to the bridge

    def lane_sender(self, sender: Sender, lane: Lane) -> SignedSender:
        """Return the sender of a lane's batches over a link."""
        self._senders = [each for each in self._senders if not each.closed]
        made = SignedSender(sender, self._windows[lane], lambda batch: self._output.sign(SignedKind.BATCH, batch))
        self._senders.append(made)
        return made

    def link_closed(self, link: object, why: str) -> None:
        """Note that a link has ended: the outcomes of its batches are unknown."""
        for each in self._senders:
            if each.link is link:
                each.fail(why)

    def settle(self, message: Message, outcome: Outcome) -> None:
        """Send the bridge the outcome of its message."""
        number = message.properties[NUMBER]
        assert isinstance(number, int)
        self.reports.settle(number, outcome)

    def close(self) -> None:
        """Tell the bridge that this connection ends, so that it need not wait for it."""
        self.reports.send_outcomes("the gateway ends the connection")

    async def keep(self) -> None:
        """Send a beacon at an interval; end the connection if the bridge is silent. Never returns."""
        while True:
            self.reports.send_outcomes()
            await asyncio.sleep(BEACON_S)
            if (silent_s := self._loop.time() - self._heard_s) >= SILENCE_S:
                self._end(f"no signed message of the bridge for {silent_s:.0f} s")

    # --- from the bridge

    def counts(self, message: Message) -> bool:
        """Return True for a message that counts, and that its receiver has to settle by `settle`. Take settlements."""
        why = "it comes before the answer to hello"
        if self._intake is not None:
            why = self._intake.doubt(SignedKind.CONTROL, message) or ""
        if why:
            self.refused += 1
            _log.warning("a message does not count: %s", why)
            return False
        self._heard_s = self._loop.time()
        if message.content_type != SETTLEMENT_CONTENT_TYPE:
            return True
        try:
            self._settled(decode_settlement(message), message.properties[NUMBER])
        except Poison as error:  # of a bridge whose signature is right: of another version
            self._end(str(error))
        return False

    def _settled(self, settlement: SignedOutcomes, number: object) -> None:
        assert isinstance(number, int)
        if number > self._windows_of:  # not one that was overtaken
            self._windows_of = number
            for lane, window in self._windows.items():
                window.size = settlement.windows.get(lane, LANE_CREDIT)
        for each in settlement.outcomes:
            for sender in self._senders:
                if (future := sender.open.pop(each.number, None)) is not None and not future.done():
                    future.set_result(each.outcome)
        for window in self._windows.values():
            window.move()
        if settlement.closed:
            self._end(f"the bridge ends the connection: {settlement.closed}")
