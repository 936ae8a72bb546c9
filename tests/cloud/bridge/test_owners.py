"""Who owns a shard is asked for in a way that cannot end the bridge."""

from concurrent.futures import Future

from fogline_cloud.bridge import owners
from fogline_cloud.bridge.owners import Owners


class SilentKafka:
    """As `KafkaClients`, with an admin client whose questions are not answered. `limits_s`: the time that each may take."""

    def __init__(self):
        self.limits_s: list[float] = []

    def admin(self):
        return self

    def describe_consumer_groups(self, groups, *, request_timeout):
        self.limits_s.append(request_timeout)
        return {group: Future() for group in groups}


async def test_a_question_is_given_up_before_librdkafka_does(monkeypatch):
    """A request that librdkafka gave up, with its client alive when the coordinator comes back, aborts the process."""
    assert owners._ABANDON_S >= 10 * owners._LIMIT_S
    monkeypatch.setattr(owners, "_LIMIT_S", 0.05)
    kafka = SilentKafka()
    assert await Owners(kafka, "group", "bridge-1@127.0.0.1:1").find(0) == ""
    assert kafka.limits_s == [owners._ABANDON_S]
