"""Forwards what a peer sends to the bridge that owns the shard, and that bridge's replies to the peer.

So a client may connect to any bridge, and a load balancer may stand in front of them (docs/decisions/0031). A
command for a device that a bridge does not know, and a request to cancel a command of which it has no record, go to the other
bridges, one after the other.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from msgspec.structs import replace

from fogline.address import CommandResponse
from fogline.amqp.events import Link
from fogline.amqp.login import EXTERNAL, Login
from fogline.amqp.outcome import (
    INTERNAL_ERROR,
    MESSAGE_SIZE_EXCEEDED,
    NOT_FOUND,
    RELEASED,
    DeliveryState,
    Outcome,
    rejected,
)
from fogline.amqp.security import ClientSecurity
from fogline.amqp.sending import Sender
from fogline.amqp.wire import encode
from fogline.errors import Misconfigured
from fogline.events.codec import MAX_MESSAGE_BYTES
from fogline.message import Message
from fogline.process.files.settings_file import split_endpoint
from fogline.process.files.tls_files import client_context
from fogline.process.log_throttle import LogThrottle
from fogline_cloud.bridge.group.shard_table import ShardTable
from fogline_cloud.bridge.peers.peer import Peer
from fogline_cloud.bridge.peers.upstream import Upstream
from fogline_cloud.settings import BridgeSettings

SHARDS = "fogline_shards"
"""Property of a message that is forwarded in search of its device or command: the numbers of the receiver's shards."""
LOOK_S = 5.0
"""How often the bridge looks for other bridges that may owe replies to its operators."""

_log = logging.getLogger("fogline.bridge.forwarding")
_log.addFilter(LogThrottle())
Owners = Callable[[], Awaitable[dict[int, str]]]
"""Returns `host:port` of the other bridges, by the number of each shard that they own."""


@dataclass(slots=True, eq=False)
class _Forwarded:
    """One peer's own reply links, and its connections to other bridges by their addresses."""

    peer: Peer
    replies: dict[CommandResponse, Sender] = field(default_factory=dict)
    upstreams: dict[str, Upstream] = field(default_factory=dict)

    def sender(self, address: CommandResponse) -> Sender | None:
        found = self.replies.get(address)
        return None if found is None or found.closed else found

    def forget(self, upstream: Upstream) -> None:
        self.upstreams = {address: each for address, each in self.upstreams.items() if each is not upstream}


class Forwarder:
    """The connections of this bridge's peers to the other bridges. All methods run on the loop."""

    def __init__(self, settings: BridgeSettings, shards: ShardTable, owners: Owners) -> None:
        self._settings = settings
        self._shards = shards
        self._owners = owners
        self._peers: dict[Peer, _Forwarded] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._watching: asyncio.Task[None] | None = None

    def send(
        self,
        peer: Peer,
        message: Message,
        shard_number: int | None,
        settle: Callable[[Outcome], None],
        ends_ms: int | None = None,
    ) -> None:
        """Forward a message, whose `to` is its whole address, to a shard's owner; None: to the bridge that knows its device.

        `settle` is called once, later. `ends_ms`: the end of its time to live on this machine's monotonic clock.
        """
        size = len(encode(message))
        if size > MAX_MESSAGE_BYTES:
            settle(rejected(MESSAGE_SIZE_EXCEEDED, f"a message may have {MAX_MESSAGE_BYTES} bytes; this one has {size}"))
            return
        task = asyncio.create_task(self._send(peer, message, shard_number, settle, ends_ms), name="forward")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(
        self,
        peer: Peer,
        message: Message,
        shard_number: int | None,
        settle: Callable[[Outcome], None],
        ends_ms: int | None,
    ) -> None:
        try:
            owners = await self._owners()
            if shard_number is None:
                outcome = await self._search(peer, message, owners, ends_ms)
            else:
                outcome = await self._try(peer, owners.get(shard_number, ""), message, ends_ms)
        except Exception as error:  # noqa: BLE001 - otherwise the message would never be settled
            _log.exception("a message of %s cannot be forwarded", peer.principal)
            outcome = rejected(INTERNAL_ERROR, f"the bridge failed to forward it ({type(error).__name__}); its log says why")
        settle(outcome)  # of a peer that is gone, too: until then the message counts against the budget

    async def _search(self, peer: Peer, message: Message, owners: dict[int, str], ends_ms: int | None) -> Outcome:
        """Ask each other bridge. Only if all shards are there, and no bridge knows the device or the command, it is unknown.

        Kafka may still name a bridge that has lost its shards, so each is told which shards it has to answer for.
        """
        found = []
        for address in dict.fromkeys(owners.values()):
            numbers = ",".join(str(number) for number, owner in owners.items() if owner == address)
            asked = replace(message, properties={**message.properties, SHARDS: numbers})
            outcome = await self._try(peer, address, asked, ends_ms)
            if outcome.state is not DeliveryState.RELEASED and outcome.condition != NOT_FOUND:
                return outcome
            found.append(outcome)
        here = {shard.number for shard in self._shards if shard.ready}
        is_whole = len(here | owners.keys()) == self._shards.count and all(each.condition == NOT_FOUND for each in found)
        return found[0] if found and is_whole else RELEASED

    async def _try(self, peer: Peer, address: str, message: Message, ends_ms: int | None) -> Outcome:
        if not address or peer.closed:
            return RELEASED
        upstream = self._upstream(self._forwarded(peer), address)
        return RELEASED if upstream is None else await upstream.send(message, ends_ms)

    def add_reply_link(self, peer: Peer, address: CommandResponse, sender: Sender) -> None:
        """Receive a peer's replies from the other bridges too."""
        forwarded = self._forwarded(peer)
        forwarded.replies[address] = sender
        for upstream in forwarded.upstreams.values():
            upstream.listen(address)
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch(), name="other bridges")

    def remove_link(self, link: Link | None) -> None:
        """Forget a reply link that was detached, and what belongs to peers that are gone."""
        for peer, forwarded in list(self._peers.items()):
            for address in [each for each, sender in forwarded.replies.items() if sender.link is link]:
                del forwarded.replies[address]
                for upstream in forwarded.upstreams.values():
                    upstream.unlisten(address)
            if peer.closed:
                del self._peers[peer]
                for upstream in list(forwarded.upstreams.values()):
                    upstream.close()
        if self._watching is not None and not any(each.replies for each in self._peers.values()):
            self._watching.cancel()
            self._watching = None

    def close(self) -> None:
        """Close all connections."""
        for task in (*self._tasks, *([self._watching] if self._watching is not None else [])):
            task.cancel()
        for forwarded in self._peers.values():
            for upstream in list(forwarded.upstreams.values()):
                upstream.close()
        self._peers.clear()

    def _forwarded(self, peer: Peer) -> _Forwarded:
        return self._peers.setdefault(peer, _Forwarded(peer))

    async def _watch(self) -> None:
        """Keep the operators that listen connected to every bridge: a bridge may owe a reply since an earlier connection."""
        while True:
            addresses = set((await self._owners()).values())
            for forwarded in list(self._peers.values()):
                for address in addresses if forwarded.replies else ():
                    self._upstream(forwarded, address)
            await asyncio.sleep(LOOK_S)

    def _upstream(self, forwarded: _Forwarded, address: str) -> Upstream | None:
        if (known := forwarded.upstreams.get(address)) is not None:
            return known
        try:
            host, port = split_endpoint(address, "bridge.advertised")
            security = self._security()
        except Misconfigured as error:
            _log.warning("nothing is forwarded to the bridge at %s: %s", address, error)
            return None
        peer = forwarded.peer
        upstream = Upstream(peer.principal, self._settings.name, security, forwarded.sender, forwarded.forget)
        forwarded.upstreams[address] = upstream
        for each in forwarded.replies:
            upstream.listen(each)
        upstream.start(host, port)
        return upstream

    def _security(self) -> ClientSecurity:
        tls = self._settings.tls
        return ClientSecurity() if tls is None else ClientSecurity(Login(EXTERNAL), client_context(tls, "bridge.tls"))


def unknown_device(device: str) -> str:
    """Return why a command for an unknown device is refused."""
    return f"device {device} is not known here: it has sent no event"
