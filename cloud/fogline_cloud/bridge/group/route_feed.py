"""Learns from the checkpoints of all shards which gateway reaches a device, so that all bridges agree."""

from fogline_cloud.commands.routes import Routes
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.kafka.committed_records import CommittedRecord
from fogline_cloud.kafka.record_tail import RecordTail
from fogline_cloud.shard.checkpoint import ROUTE, read_entries


def route_feed(clients: KafkaClients, tenant: str, shards: int, routes: Routes) -> RecordTail:
    """Return the feed of the routes of the tenant's other bridges. The newest claim of a device counts, at every bridge."""

    def take(records: list[CommittedRecord]) -> None:
        for each in records:
            if each.key.startswith(ROUTE):
                for device, route in read_entries([(each.key, each.value)]).routes.items():
                    routes.recall(device, route.gateway, route.since_ms)

    return RecordTail(clients, {(topics.checkpoint(tenant), shard): True for shard in range(shards)}, take)
