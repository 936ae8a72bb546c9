"""Gateways behind routers and brokers: lets them in by signed hellos, and passes on what they have signed.

What a router or broker, or anybody there, has altered, sent again, kept from an earlier connection or made up counts for
nothing. Each such message is in the audit with its reason.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Iterator

from cryptography.hazmat.primitives.serialization import Encoding

from fogline.address import Address, HelloAddress, IngestAddress, shown
from fogline.amqp.events import Delivery
from fogline.amqp.outcome import UNAUTHORIZED, rejected
from fogline.errors import Poison
from fogline.events.event import Lane
from fogline.gateway.gateway_statistics import STATISTICS_CONTENT_TYPE
from fogline.gateway.hello import HELLO_CONTENT_TYPE, PROTOCOL, Welcome, decode_hello, encode_hello
from fogline.gateway.message_signature import GatewayName, SignedKind, doubt_signature
from fogline.gateway.settlement import SETTLEMENT_CONTENT_TYPE, decode_settlement
from fogline.gateway.signed_session import (
    CERTIFICATE,
    CHALLENGE,
    CHALLENGE_S,
    GATEWAY,
    NUMBER,
    Challenges,
    HelloJudge,
    SignedIntake,
)
from fogline.message import Message
from fogline.process.log_throttle import LogThrottle
from fogline_cloud.access.principal import Principal
from fogline_cloud.bridge.door.authentication import Authentication, NotAuthenticated
from fogline_cloud.bridge.door.entrance import Entrance
from fogline_cloud.bridge.door.listener import refusal
from fogline_cloud.bridge.group.shard_table import ShardTable
from fogline_cloud.bridge.peers.peer import GatewayPeer, LinkHandler
from fogline_cloud.bridge.via.control_line import BridgeSignature, ControlLine
from fogline_cloud.bridge.via.intermediary import Intermediary
from fogline_cloud.bridge.via.signed_gateway import SignedGateway

_log = logging.getLogger("fogline.bridge.via.refused")
_log.addFilter(LogThrottle())


class GatewaysBehind:
    """The gateways of one bridge behind routers and brokers. Used on the loop.

    `handler`: serves their hellos, statistics and batches as those of other gateways. `resume`: sends a gateway what it has not
    taken.
    """

    def __init__(
        self,
        tenant: str,
        shards: ShardTable,
        authentication: Authentication,
        *,
        entrance: Entrance,
        signature: BridgeSignature,
        handler: LinkHandler,
        resume: Callable[[GatewayPeer], None],
    ) -> None:
        self.refused = 0
        """Messages that did not count."""
        self._tenant, self._shards = tenant, shards
        self._authentication, self._entrance, self._audit = authentication, entrance, entrance.audit
        self._signature = signature
        self._handler, self._resume = handler, resume
        self._judge = HelloJudge(Challenges(secrets.token_bytes(32)))
        self._gateways: dict[str, SignedGateway] = {}
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        return len(self._gateways)

    def __iter__(self) -> Iterator[SignedGateway]:
        """Iterate over the gateways whose hellos count."""
        return iter(list(self._gateways.values()))

    def close(self) -> None:
        """End the connections of all gateways."""
        for each in self:
            each.close()

    def connected(self, via: Intermediary) -> None:
        """See `ViaHandler`. Send again what a connection that has ended had not passed on."""
        for each in self:
            if each.via is via and each.peer is not None:
                each.control.report()
                self._resume_lost(each)

    # --- messages

    def received(self, via: Intermediary, delivery: Delivery, message: Message, address: Address) -> None:
        """See `ViaHandler`."""
        name = str(message.properties.get(GATEWAY, ""))
        try:
            if not isinstance(address, HelloAddress):
                self._on_signed(via, delivery, message, address, name)
            elif message.content_type == HELLO_CONTENT_TYPE:
                self._on_hello(via, delivery, message, address, name)
            else:
                self._on_signed(via, delivery, message, address, name)
        except (Poison, NotAuthenticated) as error:
            self.refuse(via, delivery, name, str(error), address)
        except Exception as error:  # noqa: BLE001 - one message must not end the connection of all gateways
            _log.exception("a message at %s is refused after an unexpected error", address)
            self.refuse(via, delivery, name, f"the bridge failed at it ({type(error).__name__})", address)

    def refuse(self, via: Intermediary, delivery: Delivery, name: str, why: str, address: Address) -> None:
        """See `ViaHandler`. A router passes that on: an honest gateway says hello again."""
        self.refused += 1
        text = f"a message in the name of gateway {shown(name)}, by way of {via}: {why}"
        _log.warning("refused: %s", text)
        self._audit.note(None, "MESSAGE REFUSED", text, name=str(address))
        via.settle(delivery, rejected(UNAUTHORIZED, why))

    # --- hello

    def _on_hello(self, via: Intermediary, delivery: Delivery, message: Message, address: HelloAddress, name: str) -> None:
        principal, certificate = self._authentication.of_message(message.properties.get(CERTIFICATE), name)
        gateway, key = GatewayName(self._tenant, principal.name), certificate.public_key()
        if (condition := self._entrance.doubt(principal)) is not None and principal.name not in self._gateways:
            raise NotAuthenticated(condition.description)
        epoch = decode_hello(message.body).epoch
        if not epoch:
            raise NotAuthenticated("its hello has no epoch")
        if CHALLENGE not in message.properties:
            if (why := doubt_signature(key, SignedKind.HELLO, gateway, message)) is not None:
                raise NotAuthenticated(why)
            via.settle(delivery)
            self._direct(via, gateway, epoch, message)
            return
        if (why := self._judge.doubt(gateway, message, key, time.monotonic_ns())) is not None:
            raise NotAuthenticated(why)
        control = ControlLine(gateway, epoch, self._signature, lambda: via.control(principal.name))
        made = SignedGateway(via, SignedIntake(gateway, epoch, key), control, self._ended)
        self._let_in(made, principal, certificate.public_bytes(Encoding.DER))
        assert made.peer is not None
        self._handler.received(made.peer, made.delivery(delivery, 0, Lane.TELEMETRY), message, address)

    def _direct(self, via: Intermediary, name: GatewayName, epoch: str, request: Message) -> None:
        """Tell a gateway its shard, and give it a challenge if the shard is here."""
        number = self._shards.number_of(name.gateway)
        is_here = self._shards.ready(number) is not None
        why = "this hello needs a challenge" if is_here else f"shard {number} is not here at present"
        welcome = Welcome(protocol=PROTOCOL, shard=number, shards=self._shards.count, refused=why, retry_after_s=2.0)
        answer = Message(
            body=encode_hello(welcome),
            content_type=HELLO_CONTENT_TYPE,
            correlation_id=request.correlation_id,
            properties={CHALLENGE: self._judge.challenge(name, time.monotonic_ns())} if is_here else {},
        )
        if (link := via.control(name.gateway)) is not None:
            link.send(self._signature.welcome(name, epoch, answer))
            self._loop.call_later(CHALLENGE_S, self._release, via, name.gateway)

    def _release(self, via: Intermediary, name: str) -> None:
        """End the link to a gateway that is not connected by way of it."""
        known = self._gateways.get(name)
        if known is None or known.via is not via:
            via.release(name)

    def _let_in(self, made: SignedGateway, principal: Principal, certificate: bytes) -> None:
        former = self._gateways.get(principal.name)
        if former is not None:
            former.end("the gateway has said hello again", "the gateway has said hello again")
            self._entrance.leave(former, "the gateway has said hello again")
        self._gateways[principal.name] = made
        peer = self._entrance.let_in(principal, made, "", "", certificate)
        assert isinstance(peer, GatewayPeer)
        made.peer = peer
        peer.control = made.control

    def _ended(self, gateway: SignedGateway, why: str) -> None:
        """Forget a gateway, unless a newer hello has replaced it already."""
        peer = self._entrance.leave(gateway, why)
        if peer is not None and self._gateways.get(peer.principal.name) is gateway:
            del self._gateways[peer.principal.name]
            self._release(gateway.via, peer.principal.name)

    # --- what follows hello

    def _on_signed(self, via: Intermediary, delivery: Delivery, message: Message, address: Address, name: str) -> None:
        gateway = self._gateways.get(name)
        if gateway is None or gateway.peer is None:
            raise NotAuthenticated("no hello of it counts here")
        if gateway.via is not via:
            raise NotAuthenticated("its hello came by another way")
        is_batch = isinstance(address, IngestAddress)
        if (why := gateway.intake.doubt(SignedKind.BATCH if is_batch else SignedKind.REPORT, message)) is not None:
            raise NotAuthenticated(why)
        gateway.heard()
        if is_batch:
            self._on_batch(gateway, gateway.peer, delivery, message, address)
            return
        via.settle(delivery)
        if message.content_type == SETTLEMENT_CONTENT_TYPE:
            settlement = decode_settlement(message)
            gateway.control.settled(settlement.outcomes)
            if settlement.closed:
                gateway.end(settlement.closed, "")
                return
        elif message.content_type == STATISTICS_CONTENT_TYPE:
            self._handler.received(gateway.peer, gateway.delivery(delivery, 0, Lane.TELEMETRY), message, address)
        gateway.control.report()
        self._resume_lost(gateway)

    def _resume_lost(self, gateway: SignedGateway) -> None:
        if gateway.peer is not None and gateway.peer.welcomed and gateway.control.take_lost():
            self._resume(gateway.peer)

    def _on_batch(
        self, gateway: SignedGateway, peer: GatewayPeer, native: Delivery, message: Message, address: Address
    ) -> None:
        number = message.properties[NUMBER]
        assert isinstance(number, int)
        try:
            lane = Lane(str(message.properties.get("lane")))
        except ValueError:
            raise Poison("malformed", "a batch of no lane") from None
        delivery = gateway.delivery(native, number, lane)
        if not gateway.has_room(lane):
            gateway.refuse(delivery)
            return
        try:
            self._handler.received(peer, delivery, message, address)
        except Poison as error:
            self._audit.note(peer.principal, "MESSAGE REFUSED", str(error), name=str(address))
            peer.settle(delivery, refusal(error))
