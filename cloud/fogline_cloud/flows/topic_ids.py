"""The ids that Kafka gave the raw topics, beside the offsets that the flow keeps of them.

A topic that was deleted and made again has another id, and its offsets begin anew: what the flow knows of the former topic
says nothing of the new one. The table `events` knows each id as a Delta transaction application: the version of
`{flow}/topic/{topic}` is that of the application `{flow}/topic/{topic}/{id}` of the topic that the offsets belong to.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from fogline.errors import Misconfigured
from fogline_cloud import topics
from fogline_cloud.kafka import KafkaClients
from fogline_cloud.settings import Settings


def changed(names: list[str]) -> Misconfigured:
    """The error for topics that are no longer those that the flow has read."""
    these = f"topic {names[0]} was" if len(names) == 1 else f"topics {', '.join(names)} were"
    return Misconfigured(
        f"{these} deleted and made again, so the offsets that the flow has are of a topic that is gone: delete the folder "
        "of [flow] checkpoint and run once with --accept-new-topics, and the flow reads the new topic from its beginning"
    )


@dataclass(frozen=True, slots=True)
class TopicIds:
    """The raw topics' ids as they were when the query started."""

    clients: KafkaClients
    ids: Mapping[str, str]

    def check(self) -> None:
        """Raise `Misconfigured` if a topic was made again since, `Unreachable` if Kafka does not say.

        Ids never come back: whatever was read before this was read from the topics with these ids.
        """
        now = self.clients.topic_ids(self.ids) if self.ids else {}
        if names := [name for name, each in self.ids.items() if now.get(name) != each]:
            raise changed(names)


def read_topic_ids(settings: Settings) -> TopicIds:
    """Ask Kafka for the ids. Raises `Unreachable`."""
    clients = KafkaClients(settings.kafka)
    return TopicIds(clients, clients.topic_ids(topics.raw_topics(settings.tenant)))


def application(flow: str, topic: str, of: str | None = None) -> str:
    """The Delta transaction application of a topic of the flow `flow` (`Owner.name`), or `of` the topic with this id."""
    return f"{flow}/topic/{topic}" if of is None else f"{flow}/topic/{topic}/{of}"
