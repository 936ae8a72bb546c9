"""All routers and brokers between gateways and one bridge."""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from fogline.amqp.backoff import Backoff
from fogline.errors import Misconfigured
from fogline.gateway.message_signature import MessageSigner
from fogline.gateway.shown_certificate import certificates_in
from fogline.process.files.tls_files import check_private
from fogline.process.files.via_place import ViaPlace, via_place
from fogline.process.monitoring.metrics import Sample
from fogline_cloud.bridge.door.authentication import Authentication
from fogline_cloud.bridge.door.entrance import Entrance
from fogline_cloud.bridge.group.shard_table import ShardTable
from fogline_cloud.bridge.peers.peer import GatewayPeer, LinkHandler
from fogline_cloud.bridge.via.control_line import BridgeSignature
from fogline_cloud.bridge.via.gateways_behind import GatewaysBehind
from fogline_cloud.bridge.via.intermediary import Intermediary
from fogline_cloud.settings import BridgeSettings, CloudSettings

RETRY_S, RETRY_CAP_S = 1.0, 15.0
"""Longest pauses between two attempts to connect: of the first, and of all."""


class Vias:
    """The connections to them. Used on the loop. Raises `Misconfigured`. `handler`, `resume`: see `GatewaysBehind`."""

    def __init__(
        self,
        settings: CloudSettings,
        shards: ShardTable,
        authentication: Authentication,
        entrance: Entrance,
        *,
        handler: LinkHandler,
        resume: Callable[[GatewayPeer], None],
    ) -> None:
        bridge = settings.bridge
        signature = _signature(bridge)
        self.gateways = GatewaysBehind(
            settings.tenant,
            shards,
            authentication,
            entrance=entrance,
            signature=signature,
            handler=handler,
            resume=resume,
        )
        self._shards = shards
        self.intermediaries: list[Intermediary] = []
        for each, place in zip(bridge.via, _places(bridge), strict=True):
            place()  # a mistake is found at the start
            backoff = Backoff(RETRY_S, RETRY_CAP_S)
            made = Intermediary(bridge.name, settings.tenant, each, place, self.gateways, backoff=backoff)
            self.intermediaries.append(made)

    def start(self) -> None:
        """Begin to connect."""
        for each in self.intermediaries:
            each.start()

    def serve(self) -> None:
        """Receive for the shards that are ready here now."""
        ready = frozenset(shard.number for shard in self._shards if shard.ready)
        for each in self.intermediaries:
            each.serve(ready)

    def read(self) -> Iterator[Sample]:
        """Yield the present samples."""
        for each in self.intermediaries:
            yield Sample("fogline_bridge_via_connected", int(not each.why), (each.url,))
        yield Sample("fogline_bridge_via_gateways", len(self.gateways))
        yield Sample("fogline_bridge_via_refused_total", self.gateways.refused)

    async def close(self) -> None:
        """End the connections, after the gateways have been told."""
        self.gateways.close()
        await asyncio.sleep(0)  # they leave
        for each in self.intermediaries:
            await each.close()


def check_vias(bridge: BridgeSettings) -> None:
    """Check the settings of all routers and brokers. Raises `Misconfigured`."""
    if bridge.via:
        _signature(bridge)
        for place in _places(bridge):
            place()


def _places(bridge: BridgeSettings) -> list[Callable[[], ViaPlace]]:
    assert bridge.tls is not None, "a signature has files"
    return [partial(via_place, each, bridge.tls, f"bridge.via[{number}]") for number, each in enumerate(bridge.via)]


def _signature(bridge: BridgeSettings) -> BridgeSignature:
    tls = bridge.tls
    if tls is None or tls.certificate is None or tls.key is None:
        raise Misconfigured("[[bridge.via]] needs [bridge.tls] with `certificate` and `key`: by them messages are signed")
    check_private(tls.key, "bridge.tls.key")
    try:
        key, certificate = Path(tls.key).read_bytes(), Path(tls.certificate).read_bytes()
    except OSError as error:
        raise Misconfigured(f"bridge.tls: cannot read {error.filename}: {error.strerror}") from None
    return BridgeSignature(MessageSigner.of_pem(key), certificates_in(certificate))
