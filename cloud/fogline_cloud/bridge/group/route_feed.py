"""Learns from the checkpoints of all shards which gateway reaches a device, and whether the number of shards has changed."""

from collections.abc import Callable

from fogline_cloud.commands.routes import Routes
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.kafka.committed_records import CommittedRecord
from fogline_cloud.kafka.record_tail import RecordTail
from fogline_cloud.shard.checkpoint import LAYOUT, ROUTE, Layout, LayoutChanged, read_entries


def route_feed(clients: KafkaClients, tenant: str, shards: int, routes: Routes, on_layout: Callable[[str], None]) -> RecordTail:
    """Return the feed of the routes of the tenant's other bridges. The newest claim of a device counts, at every bridge.

    `on_layout` is called on the feed's thread, with a sentence, if the number of shards is changed from now on.
    """

    def take(records: list[CommittedRecord]) -> None:
        for each in records:
            if each.key.startswith(ROUTE):
                for device, route in read_entries([(each.key, each.value)]).routes.items():
                    routes.recall(device, route.gateway, route.since_ms)
            elif each.key == LAYOUT and feed.loaded:
                layout = read_entries([(each.key, each.value)]).layout
                if layout is not None and layout != Layout(shards):
                    on_layout(str(LayoutChanged(layout)))

    feed = RecordTail(clients, {(topics.checkpoint(tenant), shard): True for shard in range(shards)}, take)
    return feed
