"""The ids of the raw topics, kept beside the offsets that the flow has read. A topic that is created again has a new id.

The log of `events` keeps each id as a Delta transaction application: the version of `{tenant}/topic/{topic}` equals that of
`{tenant}/topic/{topic}/{id}` for the id that the offsets belong to.
"""

from collections.abc import Mapping, Sequence

import msgspec

from fogline.errors import Misconfigured
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients, Partition, ids_of
from fogline_cloud.settings import CloudSettings


def recreated(names: list[str]) -> Misconfigured:
    """Return the error for topics that were created again since the flow read them."""
    these = f"topic {names[0]} was" if len(names) == 1 else f"topics {', '.join(names)} were"
    return Misconfigured(
        f"{these} deleted and created again, so the offsets that the flow has read do not apply any more. To read the new "
        "topic from its beginning, delete the folder of [flow] checkpoint and run the flow once with --accept-new-topics"
    )


class TopicIds(msgspec.Struct, frozen=True):
    """The ids of the raw topics and their partitions, at the start of the query: a topic may get more of them."""

    clients: KafkaClients
    ids: Mapping[str, str]
    partitions: Sequence[Partition]

    def check(self) -> None:
        """Raise `Misconfigured` if a topic was created again, `Unreachable` without Kafka. Covers all records read before."""
        now = ids_of(self.clients.describe(self.ids)) if self.ids else {}
        if names := [name for name, each in self.ids.items() if now.get(name) != each]:
            raise recreated(names)


def read_topic_ids(settings: CloudSettings) -> TopicIds:
    """Read ids and partitions from Kafka. Raises `Unreachable`."""
    clients = KafkaClients(settings.kafka)
    found = clients.describe(topics.of_lanes(settings.flow.lanes, settings.tenant))
    partitions = [(name, number) for name, each in found.items() for number in range(each.partitions)]
    return TopicIds(clients, ids_of(found), partitions)


def topic_application(tenant: str, topic: str, topic_id: str | None = None) -> str:
    """Return the Delta transaction application of a topic, or of one id of the topic."""
    return f"{tenant}/topic/{topic}" if topic_id is None else f"{tenant}/topic/{topic}/{topic_id}"
