"""Performs the effects of one connection. While an effect cannot be performed, the connection is not read."""

import asyncio
from collections.abc import Callable, Sequence
from enum import IntFlag
from functools import partial
from typing import Protocol

from fogline.commands.command import Command
from fogline.errors import SlowDown
from fogline.events.event import Receipt
from fogline.process.rates import Bucket, DeviceRates
from fogline.transport.byte_budget import ByteBudget
from fogline_edge.adapters.bodies.uploads import BodyUploads
from fogline_edge.adapters.mqtt.counters import MqttCounters
from fogline_edge.adapters.mqtt.protocol.primitives import Reason
from fogline_edge.adapters.mqtt.server.body_reader import BodyReader
from fogline_edge.adapters.mqtt.server.dispatch import Dispatch
from fogline_edge.adapters.mqtt.session.ack_order import PendingAck
from fogline_edge.adapters.mqtt.session.client_protocol import ClientProtocol, ProtocolContext
from fogline_edge.adapters.mqtt.session.effects import (
    Abort,
    ClientAccepted,
    Close,
    CloseReason,
    Continuation,
    Effect,
    Respond,
    Send,
    Store,
    StoreBody,
    Verify,
)
from fogline_edge.adapters.port import Port
from fogline_edge.adapters.send_limit import SendLimit
from fogline_edge.adapters.sockets.send_queue import unacknowledged_bytes

_BULKY_BYTES = 1024  # a larger packet is a command: the client may take its time to read it


class HoldReason(IntFlag):
    """Reason not to read."""

    VERIFY = 1  # a password is being checked
    ROOM = 2  # the port is full
    WINDOW = 4  # too many messages wait for their commit
    TURN = 8  # the connection has used its turn of the loop
    SLOW = 16  # the client does not read
    RATE = 32  # the device is too fast
    BODY = 64  # a large body waits for its commits, or for room


class ReadGate:
    """Stops reading `transport` while `held` is not empty; then calls `resumed`. `closed`: nothing is read, stored or sent."""

    __slots__ = ("_resumed", "_transport", "closed", "held")

    def __init__(self, transport: asyncio.Transport, resumed: Callable[[], None]) -> None:
        self.held = HoldReason(0)
        self.closed = False
        self._transport = transport
        self._resumed: Callable[[], None] | None = resumed

    def hold(self, reason: HoldReason) -> None:
        """Add a reason."""
        if not self.held and not self.closed:
            self._transport.pause_reading()
        self.held |= reason

    def release(self, reason: HoldReason) -> None:
        """Remove a reason; without another one, read again."""
        self.held &= ~reason
        if not self.held and self._resumed is not None:
            self._transport.resume_reading()
            self._resumed()

    def close(self) -> None:
        """Call `resumed` no more. Safe to call twice."""
        self.closed = True
        self._resumed = None  # so that no reference cycle with the reader is left


class ListenerContext(Protocol):
    """The parts of the listener that all its connections share."""

    port: Port
    context: ProtocolContext
    counters: MqttCounters
    dispatch: Dispatch
    rates: DeviceRates
    budget: ByteBudget
    bodies: BodyUploads | None

    def schedule(self, flush: Callable[[], None]) -> None:
        """Call `flush` at the end of this turn of the loop."""


class ConnectionControl(Protocol):
    """The effects that concern the connection itself."""

    def opened(self, accepted: ClientAccepted) -> None:
        """Register the accepted client."""

    def verify(self, verify: Verify) -> None:
        """Check a password, then call `PacketReader.verified`."""

    def finish(self, close: Close) -> None:
        """End from this side: send the due PUBACKs and the last packet."""

    def drop(self, reason: CloseReason, detail: str) -> None:
        """End at once, without a packet. Bytes that the client's TCP has not got are discarded."""


class EffectRunner:
    """Performs effects, and is the `Carrier` of commands. `bulky`: a large packet was written since the client read all.

    `packet_at`: arrival of the last whole packet, in the loop's time, or the end of the last pause in reading.
    """

    def __init__(
        self,
        protocol: ClientProtocol,
        connection: ConnectionControl,
        transport: asyncio.Transport,
        listener: ListenerContext,
        gate: ReadGate,
    ) -> None:
        self.bulky = False
        self._protocol = protocol
        self._connection = connection
        self._transport = transport
        self._gate = gate
        self._port = listener.port
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self.packet_at = self._loop.time()
        self._parked: Store | Respond | None = None
        self._payer = ""
        self._bucket: Bucket | None = None
        self._flushing = False
        self._limit = SendLimit(transport, listener.context.now)
        self.body = BodyReader(listener.bodies, _Bodies(self, protocol, connection, gate))

    def perform(self, effects: Sequence[Effect]) -> None:
        """Perform effects in order."""
        for effect in effects:
            match effect:
                case Store() | StoreBody() | Respond():
                    self._put(effect)
                case Send(data, deadline):
                    self.acknowledge()  # a PUBCOMP must not overtake its PUBREC
                    self.bulky = self.bulky or len(data) > _BULKY_BYTES
                    if deadline is not None:
                        self._limit.until(deadline)
                    self._transport.write(data)
                case ClientAccepted():
                    self._connection.opened(effect)
                case Verify():
                    self._gate.hold(HoldReason.VERIFY)
                    self._connection.verify(effect)
                case Abort(reason=reason, detail=detail):
                    self._connection.drop(reason, detail)
                    return  # the connection has ended, and with it what the other effects are for
                case Close(reason=reason):
                    if reason is CloseReason.LEFT:
                        self._protocol.bytes_received(self.packet_at, drained=self.drained, after_s=0)
                    self._connection.finish(effect)
                case _:
                    self._listener.dispatch.run(effect, self)

    def acknowledge(self) -> None:
        """Send the due PUBACKs and PUBRECs in one write."""
        data, count = self._protocol.ack_order.take()
        if count:
            self._listener.counters.acknowledged += count
            self._transport.write(data)
            self._protocol.ack_order.written(self._loop.time())

    def drained(self) -> bool:
        """Return True if the client's TCP has acknowledged all bytes sent."""
        return unacknowledged_bytes(self._transport) == 0

    def execute(self, command: Command) -> None:
        """See `Carrier.execute`."""
        self.perform(self._protocol.downstream.execute(command))

    def abandon(self, command_id: str) -> bool:
        """See `Carrier.abandon`."""
        effects = self._protocol.downstream.abandon(command_id)
        self.perform(effects or ())
        return effects is not None

    def resume(self, then: Continuation) -> None:
        """See `Carrier.resume`."""
        if not self._gate.closed:
            self.perform(then())

    def close(self) -> None:
        """Clean up after the closed socket."""
        self._limit.close()
        del self.body  # otherwise a reference cycle would wait for the garbage collector

    def wait_for_room(self) -> None:
        """Stop reading until the port accepts arrivals again."""
        self._gate.hold(HoldReason.ROOM)
        self._port.when_room(self._on_room)

    def _put(self, effect: Store | StoreBody | Respond) -> None:
        if isinstance(effect, StoreBody):
            self._listener.counters.received += 1
            self._pay(effect.arrival.device)
            self.body.begin(effect)
            return
        committed = partial(self.committed, effect.pending)
        try:
            if isinstance(effect, Store):
                self._port.put(effect.arrival, committed)
            else:
                self._listener.dispatch.answer(effect.response, committed)
        except SlowDown:
            self._parked = effect
            self.wait_for_room()
            return
        self._listener.counters.received += 1
        if self._protocol.full:
            self._gate.hold(HoldReason.WINDOW)
        self._pay(effect.arrival.device if isinstance(effect, Store) else effect.response.device)

    def _pay(self, device: str) -> None:
        """Take one event from the rate of `device` (for a dead letter, of the client), and pause while it is exceeded."""
        if device != self._payer or self._bucket is None:
            payer = self._protocol.key if device == self._port.gateway else device
            self._payer, self._bucket = device, self._listener.rates.bucket(payer, self.packet_at)
        if pause_s := self._bucket.pay(self.packet_at):
            self._listener.counters.slowed += 1
            self._gate.hold(HoldReason.RATE)
            self._loop.call_later(pause_s, self._gate.release, HoldReason.RATE)

    def _on_room(self) -> None:
        parked, self._parked = self._parked, None
        if self._gate.closed:
            return
        if parked is not None:
            self._put(parked)
        if self._parked is None:
            self._gate.release(HoldReason.ROOM)

    def committed(self, pending: PendingAck, receipt: Receipt) -> None:  # noqa: ARG002 (every receipt is acknowledged)
        """Acknowledge a durable message, at the end of this turn of the loop."""
        self._protocol.ack_order.committed(pending)
        if not self._flushing:
            self._flushing = True
            self._listener.schedule(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if not self._gate.closed:
            self.acknowledge()
            self.perform(self._protocol.inbound.release_early())
            if self._gate.held & HoldReason.WINDOW and not self._protocol.full:
                self._gate.release(HoldReason.WINDOW)


class _Bodies:
    """The connection, as its large bodies see it (`BodyControl`)."""

    def __init__(self, runner: EffectRunner, protocol: ClientProtocol, connection: ConnectionControl, gate: ReadGate) -> None:
        self._protocol = protocol
        self._connection = connection
        self._gate = gate
        self.committed = runner.committed

    def hold_body(self, *, held: bool) -> None:
        if held:
            self._gate.hold(HoldReason.BODY)
        elif self._gate.held & HoldReason.BODY:
            self._gate.release(HoldReason.BODY)

    def refuse_body(self, code: Reason, why: str) -> None:
        self._connection.finish(self._protocol.disconnect(code, CloseReason.MALFORMED, why))
