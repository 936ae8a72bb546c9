"""Fencing and torn transactions, shard by shard: whatever an owner is told of its commit, the tail tells the truth."""

import asyncio
import queue
import signal
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from chaos.site import Program
from chaos.zombie import produce, stream_of
from fogline.amqp.outcome import ACCEPTED
from fogline.codec import Batch
from fogline.event import Lane
from fogline.testing.events import STREAM, make_batch
from fogline.testing.kafka_broker import KafkaBroker
from fogline.testing.torn_line import Tear, TornLine
from fogline_cloud import topics
from fogline_cloud.bridge.checkpoint import Owner
from fogline_cloud.bridge.shard import Shard
from fogline_cloud.bridge.transaction import TransactionLog
from fogline_cloud.bridge.work import Submission
from fogline_cloud.kafka import KafkaClients
from fogline_cloud.provision import create_topics
from fogline_cloud.reading import read_committed
from fogline_cloud.records import place_of
from fogline_cloud.settings import BridgeSettings, Settings

ZOMBIES = 20
LIMIT_S = 60.0


def provided(bootstrap, tenant, shards):
    settings = Settings(tenant=tenant, kafka={"bootstrap.servers": bootstrap}, shards=shards)
    clients = KafkaClients(settings.kafka)
    create_topics(clients, settings, 1)
    return clients


def landed(clients, tenant, shards=1):
    """How often a reader of committed records sees each sequence of each stream."""
    topic = topics.of_lane(Lane.TELEMETRY, tenant)
    records = read_committed(clients, {(topic, shard): None for shard in range(shards)})
    places = [place_of(record.headers, record.value) for record in records]
    return Counter((place.stream, place.last) for place in places if place)


def wait_for(condition, what):
    """Look again and again, on a shard's thread, until it is so."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, what


@pytest.mark.fault("K3")
async def test_takeover_from_20_zombies_each_stopped_within_a_transaction(kafka, tenant, folder):
    """K3: 20 owners, stopped at four points of a transaction, wake up after another has their shards: 20 commit nothing."""
    clients = await asyncio.to_thread(provided, kafka.bootstrap, tenant, ZOMBIES)
    script = str(Path(__file__).with_name("zombie.py"))
    zombie = Program([sys.executable, script, kafka.bootstrap, tenant, str(ZOMBIES)], folder / "zombie.log")
    logs = [TransactionLog(clients, tenant, shard) for shard in range(ZOMBIES)]

    def take_and_commit(shard):
        recovered = logs[shard].take(Owner("heir", "127.0.0.1:1"))
        produce(logs[shard], tenant, shard, 1, 10)
        logs[shard].commit()
        return dict(recovered.known)

    def heir():
        with ThreadPoolExecutor(ZOMBIES) as pool:
            return list(pool.map(take_and_commit, range(ZOMBIES)))

    try:
        assert await zombie.start() == {"open": ZOMBIES}
        zombie.send(signal.SIGSTOP)
        assert await asyncio.to_thread(heir) == [{}] * ZOMBIES
        zombie.send(signal.SIGCONT)
        errors = (await zombie.says())["errors"]
    finally:
        await zombie.end()
    assert [error for error in errors if not error] == []
    expected = Counter((stream_of(shard), sequence) for shard in range(ZOMBIES) for sequence in range(1, 11))
    assert await asyncio.to_thread(landed, clients, tenant, ZOMBIES) == expected
    print(f"{len(errors)} of {ZOMBIES} zombies committed nothing")


@pytest.fixture(scope="module")
def torn(tmp_path_factory):
    """A broker behind a line that tears."""
    with TornLine() as line:
        advertised = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{line.port}"}
        broker = KafkaBroker(tmp_path_factory.mktemp("torn"), properties=advertised)
        line.target = broker.port
        with broker:
            yield line


class Owned:
    """A tenant of one shard, owned for the test."""

    def __init__(self, line, tenant, log):
        self.tenant = tenant
        self.clients = provided(f"127.0.0.1:{line.port}", tenant, 1)
        self.answers = queue.SimpleQueue()
        self._changes = queue.SimpleQueue()
        self.shard = Shard(0, lambda: log(self.clients, tenant, 0), BridgeSettings(transaction_ms=5), self._changed)

    def _changed(self, shard):
        self._changes.put(shard.ready)

    def __enter__(self):
        self.shard.start()
        assert self._changes.get(timeout=LIMIT_S), "the shard was not taken"
        return self

    def __exit__(self, *_):
        self.shard.stop()
        self.shard.join(LIMIT_S)

    def lands(self, first, last):
        self.shard.submit(Submission(*make_batch(first, last, tenant=self.tenant), self.answers.put))
        assert self.answers.get(timeout=LIMIT_S) == ACCEPTED

    def check(self, last):
        assert landed(self.clients, self.tenant) == Counter((STREAM, sequence) for sequence in range(1, last + 1))


@pytest.fixture
def hurried(monkeypatch):
    """Commits are given up, and shards taken again, soon."""
    monkeypatch.setattr("fogline_cloud.bridge.transaction._LIMIT_S", 1.0)
    monkeypatch.setattr("fogline_cloud.bridge.shard.RETAKE_S", 0.1)


@pytest.mark.parametrize("how", list(Tear), ids=lambda how: how.name.lower())
@pytest.mark.fault("K2")
def test_takeover_after_a_commit_of_unknown_outcome(torn, tenant, hurried, how):
    """K2: the commit times out: the producer is destroyed, the shard taken afresh, its tail read, the batch settled."""
    with Owned(torn, tenant, TransactionLog) as owned:
        owned.lands(1, 10)
        before = torn.torn
        torn.tear(how)
        owned.lands(11, 20)
        assert torn.torn == before + 1
        assert owned.shard.counters.retaken >= 1
        torn.deliver_late()
        owned.lands(21, 30)
        owned.check(30)
    print(f"torn commit, {how.value}: 30 of 30 events once")


@pytest.mark.fault("K2")
def test_takeover_after_a_request_that_comes_when_the_shard_was_taken_afresh(torn, tenant, hurried):
    """K2: the commit is given up, and comes to the broker after all, when the next transaction is open: it is refused."""
    before = torn.torn

    class Late(TransactionLog):
        code = None

        def commit(self, *more):
            if torn.torn > before and self._begun and Late.code is None:
                Late.code = 0
                self._producer.flush(30)
                Late.code = torn.deliver_copy()
            return super().commit(*more)

    with Owned(torn, tenant, Late) as owned:
        owned.lands(1, 10)
        torn.tear(Tear.REQUEST_LOST)
        owned.lands(11, 20)
        owned.lands(21, 30)
        owned.check(30)
    assert Late.code != 0, "a commit of a former owner was obeyed"
    print("torn commit, the request comes when the next transaction is open: refused, 30 of 30 events once")


@pytest.mark.fault("K2")
def test_takeover_after_a_late_copy_that_commits_half_of_the_next_transaction(torn, tenant, hurried):
    """K2: a late copy of the former commit commits the next transaction's first events; the client only hears of an abort."""

    class Copied(TransactionLog):
        code = None

        def produce(self, batch, span):
            if span.first != 11 or Copied.code is not None:
                return super().produce(batch, span)
            events = batch.events()
            super().produce(Batch.of(events[:5]), span)
            assert self._producer.flush(30) == 0
            Copied.code = torn.deliver_copy()
            wait_for(lambda: landed(self._clients, self._tenant)[STREAM, 15], "the copy commits nothing")
            return super().produce(Batch.of(events[5:]), span)

    with Owned(torn, tenant, Copied) as owned:
        owned.lands(1, 10)
        owned.lands(11, 20)
        owned.lands(21, 30)
        owned.check(30)
        assert Copied.code == 0
        assert owned.shard.counters.retaken >= 1
    print("torn commit, a late copy commits half of the next transaction: only the tail is believed, 30 of 30 events once")
