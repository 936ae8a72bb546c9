"""Learns from the checkpoints of all shards which gateway reaches a device, so that all bridges agree."""

from fogline_cloud import topics
from fogline_cloud.bridge.topic_feed import TopicFeed
from fogline_cloud.commands.routes import Routes
from fogline_cloud.kafka import KafkaClients
from fogline_cloud.shard.checkpoint import ROUTE, read_entries


class RouteFeed(TopicFeed):
    """The routes of the tenant's other bridges. The newest claim of a device counts, at every bridge."""

    def __init__(self, clients: KafkaClients, tenant: str, shards: int, routes: Routes) -> None:
        super().__init__(clients, topics.checkpoint(tenant), shards)
        self._routes = routes

    def apply(self, key: bytes, value: bytes) -> None:
        """See `TopicFeed`."""
        if key.startswith(ROUTE):
            for device, route in read_entries([(key, value)]).routes.items():
                self._routes.recall(device, route.gateway, route.since_ms)
