"""Looking up the owner of a shard cannot end the bridge."""

from concurrent.futures import Future

from fogline_cloud.bridge.group import shard_assignment
from fogline_cloud.bridge.group.shard_assignment import ShardDirectory


class SilentKafka:
    """As `KafkaClients`, with an admin client that never replies. `limits_s` holds the time limit of each request."""

    def __init__(self):
        self.limits_s: list[float] = []

    def admin(self):
        return self

    def describe_consumer_groups(self, groups, *, request_timeout):
        self.limits_s.append(request_timeout)
        return {group: Future() for group in groups}


async def test_a_request_is_given_up_before_librdkafka_does(monkeypatch):
    """A request that librdkafka gave up, with its client alive when the coordinator comes back, aborts the process."""
    assert shard_assignment._ABANDON_S >= 10 * shard_assignment._LIMIT_S
    monkeypatch.setattr(shard_assignment, "_LIMIT_S", 0.05)
    kafka = SilentKafka()
    assert await ShardDirectory(kafka, "group", "bridge-1@127.0.0.1:1").find(0) == ""
    assert kafka.limits_s == [shard_assignment._ABANDON_S]
