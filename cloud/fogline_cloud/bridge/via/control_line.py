"""Signed messages to one gateway behind a router or a broker. Their outcomes are those that the gateway has signed."""

import asyncio
from collections.abc import Callable, Iterable

import msgspec

from fogline.amqp.outcome import DeliveryState, Outcome
from fogline.amqp.sending import Sender
from fogline.errors import NotSent, Unreachable
from fogline.events.event import Lane
from fogline.gateway.hello import HELLO_CONTENT_TYPE
from fogline.gateway.message_signature import GatewayName, MessageSigner, SignedKind
from fogline.gateway.settlement import (
    LANE_CREDIT,
    MAX_OUTCOMES,
    NumberedOutcome,
    SignedOutcomes,
    encode_settlement,
    numbered,
)
from fogline.gateway.signed_session import CERTIFICATE, EPOCH, SignedOutput
from fogline.message import Message

RESEND_S = 30.0
"""A message without a signed outcome for so long is lost: what is open is sent again."""
TTL_MS = 60_000
"""Time after which a broker need not keep an outcome or an answer to hello."""


class BridgeSignature:
    """The signature of a bridge: the key of its certificate, and the certificate with those up to its authority's (PEM)."""

    def __init__(self, signer: MessageSigner, certificate: bytes) -> None:
        self.signer = signer
        self._certificate = certificate

    def welcome(self, name: GatewayName, epoch: str, message: Message) -> Message:
        """Return a signed answer to a hello."""
        own = {**message.properties, CERTIFICATE: self._certificate, EPOCH: epoch}
        answer = msgspec.structs.replace(message, properties=own, ttl_ms=TTL_MS)
        return self.signer.sign(SignedKind.WELCOME, name, answer)


class ControlLine:
    """The messages of one epoch to one gateway. `link` returns the link to it, None without a connection. Used on the loop."""

    def __init__(self, name: GatewayName, epoch: str, signature: BridgeSignature, link: Callable[[], Sender | None]) -> None:
        self.closed = False
        """True after the gateway's last message."""
        self.lost = False
        """True if a message was not passed on: what is open has to be sent again."""
        self._name, self._epoch, self._signature, self._link = name, epoch, signature, link
        self._output = SignedOutput(name, epoch, signature.signer)
        self._open: dict[int, tuple[asyncio.Future[Outcome], float]] = {}
        self._outcomes: list[NumberedOutcome] = []
        self._owed = dict.fromkeys(Lane, 0)
        self._is_due = self._is_sending = False
        self._loop = asyncio.get_running_loop()

    def send(self, message: Message) -> "asyncio.Future[Outcome]":
        """Send a message. The future is the outcome that the gateway has signed; of an answer to hello, the router's.

        It fails with `Unreachable` if the message may be lost.
        """
        future: asyncio.Future[Outcome] = self._loop.create_future()
        future.add_done_callback(_retrieve)
        link = self._link() if not self.closed else None
        if link is None:
            self.lost = True
            future.set_exception(NotSent("there is no link to the gateway"))
        elif message.content_type == HELLO_CONTENT_TYPE:
            return link.send(self._signature.welcome(self._name, self._epoch, message))
        else:
            number, signed = self._output.sign(SignedKind.CONTROL, message)
            self._open[number] = future, self._loop.time()
            link.send(signed).add_done_callback(lambda passed: self._passed_on(number, passed))
        return future

    def _passed_on(self, number: int, passed: "asyncio.Future[Outcome]") -> None:
        is_lost = passed.cancelled() or passed.exception() is not None or passed.result().state is not DeliveryState.ACCEPTED
        if is_lost and number in self._open:
            self.lost = True
            self._fail(number, "the message was not passed on to the gateway")

    def _fail(self, number: int, why: str) -> None:
        future, _ = self._open.pop(number)
        if not future.done():
            future.set_exception(Unreachable(why))

    def settled(self, outcomes: Iterable[NumberedOutcome]) -> None:
        """Complete the messages whose outcomes the gateway has signed."""
        for each in outcomes:
            future, _ = self._open.pop(each.number, (None, 0.0))
            if future is not None and not future.done():
                future.set_result(each.outcome)

    def take_lost(self) -> bool:
        """Return True, once, if messages were lost, or have no outcome for a long time: then their futures fail."""
        old_s = self._loop.time() - RESEND_S
        for number in [number for number, (_, sent_s) in self._open.items() if sent_s < old_s]:
            self._fail(number, "the gateway does not answer")
            self.lost = True
        lost, self.lost = self.lost, False
        return lost

    def window(self, lane: Lane) -> int:
        """Return how many batches of a lane may be in flight."""
        return max(0, LANE_CREDIT - self._owed[lane])

    def owe(self, lane: Lane, batches: int) -> None:
        """Allow fewer batches of a lane in flight, or as many more again if `batches` is negative."""
        self._owed[lane] = max(0, self._owed[lane] + batches)
        self.report()

    def settle(self, number: int, outcome: Outcome) -> None:
        """Send the outcome of a message of the gateway, together with others that come at the same moment."""
        self._outcomes.append(numbered(number, outcome))
        self.report()

    def report(self) -> None:
        """Send outcomes and windows, be there new ones or not."""
        self._is_due = True
        if not self._is_sending:
            self._is_sending = True
            self._loop.call_soon(self._report)

    def _report(self) -> None:
        """Send one message. What comes until the router or broker has taken it shares the next one."""
        self._is_sending = False
        if self.closed or not self._is_due:
            return
        outcomes, self._outcomes = self._outcomes[:MAX_OUTCOMES], self._outcomes[MAX_OUTCOMES:]
        sent = self._send(SignedOutcomes(outcomes=outcomes, windows=self._narrow()))
        if sent is None:
            self._outcomes[:0] = outcomes
            return  # the next connection asks for a report
        self._is_sending, self._is_due = True, bool(self._outcomes)
        sent.add_done_callback(lambda passed: self._reported(passed, outcomes))

    def _reported(self, passed: "asyncio.Future[Outcome]", outcomes: list[NumberedOutcome]) -> None:
        if not passed.cancelled() and passed.exception() is not None:  # the connection has ended, and the gateway's may not
            self._outcomes[:0] = outcomes
            self._is_sending = False  # the next connection, or the gateway's next message, asks for a report
        else:
            self._report()

    def _narrow(self) -> dict[Lane, int]:
        return {lane: self.window(lane) for lane in Lane if self._owed[lane]}

    def _send(self, settlement: SignedOutcomes) -> "asyncio.Future[Outcome] | None":
        if (link := self._link()) is None:
            return None
        message = msgspec.structs.replace(encode_settlement(settlement), ttl_ms=TTL_MS)
        return link.send(self._output.sign(SignedKind.CONTROL, message)[1])

    def close(self, why: str) -> None:
        """Tell the gateway that its hello counts no longer. What has no outcome fails."""
        if self.closed:
            return
        if why:
            self._send(SignedOutcomes(outcomes=self._outcomes[:MAX_OUTCOMES], closed=why[:1024]))
        self.closed = True
        for number in list(self._open):
            self._fail(number, "the gateway's connection has ended")


def _retrieve(future: "asyncio.Future[Outcome]") -> None:
    """Mark the exception as retrieved: nobody may wait for the outcome any more."""
    if not future.cancelled():
        future.exception()
