"""The gateways that are connected to this bridge, by name."""

import logging

from fogline.amqp.outcome import FORCED, LINK_STOLEN, Condition
from fogline_cloud.bridge.peers.peer import GatewayPeer

_log = logging.getLogger("fogline.bridge")


class ConnectedGateways:
    """One connection for each gateway name. All methods run on the loop."""

    def __init__(self) -> None:
        self._by_name: dict[str, GatewayPeer] = {}

    @property
    def names(self) -> list[str]:
        """The names of the connected gateways."""
        return sorted(self._by_name)

    def get(self, name: str) -> GatewayPeer | None:
        """Return a gateway that is connected."""
        return self._by_name.get(name)

    def welcomed(self, name: str) -> GatewayPeer | None:
        """Return a gateway that is connected and has been welcomed: it can receive commands."""
        peer = self._by_name.get(name)
        return peer if peer is not None and peer.welcomed else None

    def add(self, peer: GatewayPeer) -> None:
        """Add a new connection. An older connection of the same gateway is closed."""
        name = peer.principal.name
        if (former := self._by_name.pop(name, None)) is not None:
            text = "gateway %s connected a second time: the first connection is closed"
            _log.warning(text, name, extra={"gateway": name, "reason": "connected-twice"})
            former.connection.close(Condition(LINK_STOLEN, f"gateway {name} connected a second time"))
        self._by_name[name] = peer

    def remove(self, peer: GatewayPeer) -> None:
        """Remove a connection that has ended, unless a newer one has replaced it."""
        if self._by_name.get(peer.principal.name) is peer:
            del self._by_name[peer.principal.name]

    def close_shard(self, shard_number: int, why: str) -> None:
        """Close the connections of a shard's gateways, because this bridge does not own the shard at present."""
        for peer in list(self._by_name.values()):
            if peer.shard_number == shard_number:
                peer.connection.close(Condition(FORCED, why))
