"""Reads the packets of one connection: bytes to packets to the state machine.

Reading stops while anything cannot continue at once (`HoldReason`), and resumes where it stopped. No method waits.
"""

import asyncio

from fogline.transport.byte_budget import LOGIN_BYTES, ByteAccount
from fogline_edge.adapters.mqtt.protocol.framing import Framer
from fogline_edge.adapters.mqtt.protocol.primitives import PacketError, Reason
from fogline_edge.adapters.mqtt.server.effect_runner import (
    ConnectionControl,
    EffectRunner,
    HoldReason,
    ListenerContext,
    ReadGate,
)
from fogline_edge.adapters.mqtt.session.client_protocol import ClientProtocol
from fogline_edge.adapters.mqtt.session.effects import CloseReason
from fogline_edge.adapters.mqtt.session.large_publish import in_pieces
from fogline_edge.adapters.sockets.shared_buffer import READ_BYTES

PUBLISH_BYTES = 65_536 + 4096
"""Bytes that a PUBLISH with a large body may have before its payload: the topic, and properties."""
PACKETS_A_TURN = 256
"""The most packets of one connection in one turn of the loop, so that the other connections get theirs."""


class PacketReader:
    """Reads one connection, until it is closed. `runner`: performs the effects. `address`: the client's."""

    def __init__(
        self,
        protocol: ClientProtocol,
        connection: ConnectionControl,
        transport: asyncio.Transport,
        listener: ListenerContext,
        address: str,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._protocol = protocol
        self._connection = connection
        self._port = listener.port
        self.gate = ReadGate(transport, self._resumed)
        self.runner = EffectRunner(protocol, connection, transport, listener, self.gate)
        self._max_packet_bytes = listener.context.settings.max_packet_bytes
        self._framer = Framer(min(LOGIN_BYTES, self._max_packet_bytes))
        self._account: ByteAccount = listener.budget.open(address, self._give_up)
        self._address = address
        self._unfinished_since: float | None = None
        self._below_bytes = 0

    @property
    def room_bytes(self) -> int:
        """The bytes that may be read from the socket now; at least one, because an incomplete packet never fills the room."""
        if self._protocol.key is not None or self.gate.closed:
            return READ_BYTES
        return max(1, LOGIN_BYTES - self._framer.held_bytes)

    @property
    def last_packet_at(self) -> float:
        """Arrival of the last whole packet, in the loop's time; now, while the socket is not read."""
        return self._loop.time() if self.gate.held else self.runner.packet_at

    @property
    def unfinished_since(self) -> float | None:
        """Arrival of the first bytes of an incomplete packet, in the loop's time; now, while the socket is not read."""
        return self._loop.time() if self.gate.held and self._unfinished_since is not None else self._unfinished_since

    def deadline(self) -> float | None:
        """Return the time at which a silent connection ends, if ever, in the loop's time."""
        return self._protocol.deadline(self.last_packet_at, self.unfinished_since)

    def feed(self, data: bytes) -> None:
        """Handle received bytes."""
        now = self._loop.time()
        self._protocol.bytes_received(now, drained=self.runner.drained)
        self._framer.feed(data)
        self._read(now)
        self._count()

    def hold_below(self, count: int) -> None:
        """Count bytes of a handshake that a layer below keeps."""
        self._below_bytes = count
        self._count()

    def admit(self) -> None:
        """Grant the accepted client packets of full size."""
        assert self._protocol.key is not None
        self._framer.max_packet_bytes = self._max_packet_bytes
        if self.runner.body.most:
            self._framer.max_publish_bytes = self.runner.body.most + PUBLISH_BYTES
        self._account.admit(self._protocol.key[0] or self._address)

    def close(self) -> None:
        """Read no more, and drop what was read. Safe to call twice."""
        self.gate.close()
        self._framer.clear()
        self.runner.body.give_up()
        self._account.close()

    def verified(self, *, ok: bool | None) -> None:
        """Continue after the password check. `ok`: None if the password was not checked, because too many others log in."""
        self.runner.perform(self._protocol.verified(ok=ok, now=self._loop.time()))
        self.gate.release(HoldReason.VERIFY)

    def pause(self, *, paused: bool) -> None:
        """Read no packet and begin no command while the client does not read, and continue afterwards."""
        self.runner.bulky = paused
        if paused:
            self.gate.hold(HoldReason.SLOW)
        else:
            self.gate.release(HoldReason.SLOW)
        if not self.gate.closed:
            self.runner.perform(self._protocol.downstream.pause(paused=paused))

    def _read(self, now: float) -> None:
        protocol, framer, gate, runner = self._protocol, self._framer, self.gate, self.runner
        if protocol.key is not None and self._port.crowded and not gate.held:
            runner.wait_for_room()  # a next packet may need `keep` or `forget`, which a full port cannot refuse
        for _ in range(PACKETS_A_TURN):
            if gate.held or gate.closed:
                return
            if (piece := framer.next_piece()) is not None:
                if not piece:
                    return
                runner.packet_at = self._unfinished_since = now
                runner.body.add(piece, last=not framer.rest)
                continue
            try:
                packet = framer.next_packet()
            except PacketError as error:
                self._connection.finish(protocol.fail(error))
                return
            if packet is None:
                began = now if self._unfinished_since is None else self._unfinished_since
                self._unfinished_since = began if framer.unfinished else None
                return
            runner.packet_at, self._unfinished_since = now, now if framer.rest else None
            effects = protocol.receive(*packet, now)
            if framer.rest:
                try:
                    effects = in_pieces(effects, framer.rest)
                except PacketError as error:
                    effects = [protocol.fail(error)]
            runner.perform(effects)
        gate.hold(HoldReason.TURN)
        self._loop.call_soon(gate.release, HoldReason.TURN)

    def _resumed(self) -> None:
        """Continue after a pause, which does not count as silence of the client."""
        now = self.runner.packet_at = self._loop.time()
        if self._unfinished_since is not None:
            self._unfinished_since = now
        self._read(now)
        self._count()

    def _count(self) -> None:
        """Count the bytes that the framer keeps, and end the connection if there is no room for them."""
        if not self.gate.closed and not self._account.hold(self._framer.held_bytes + self._below_bytes):
            self._give_up()

    def _give_up(self) -> None:
        detail = "there is no room for its unfinished packets"
        self._connection.finish(self._protocol.disconnect(Reason.QUOTA_EXCEEDED, CloseReason.OVER_LIMIT, detail))
