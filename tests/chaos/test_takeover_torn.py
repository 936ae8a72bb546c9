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

from chaos.landed_events import landed, provided
from chaos.zombie import produce, stream_of
from fogline.amqp.outcome import ACCEPTED
from fogline.events.codec import Batch
from fogline_cloud.settings import BridgeSettings
from fogline_cloud.shard.checkpoint import Layout, ShardOwner
from fogline_cloud.shard.producer import ShardProducer
from fogline_cloud.shard.shard import Shard, ShardListeners
from fogline_cloud.shard.shard_writer import ShardWriter
from fogline_cloud.shard.work.submissions import GatewayBatch
from fogline_lab.events import STREAM, make_batch
from fogline_lab.kafka_broker import KafkaBroker
from fogline_lab.kafka_line import KafkaLine, Tear
from fogline_lab.supervisor import ChildProcess, kill_child, start_child
from sampling import a_few

ZOMBIES = 20
LIMIT_S = 60.0


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
    zombie = ChildProcess("zombie", [sys.executable, script, kafka.bootstrap, tenant, str(ZOMBIES)], folder / "zombie.log")
    writers = [ShardWriter(clients, ShardProducer(clients, tenant, shard), Layout(ZOMBIES)) for shard in range(ZOMBIES)]

    def take_and_commit(shard):
        recovered = writers[shard].take(ShardOwner("heir", "127.0.0.1:1"))
        produce(writers[shard], tenant, shard, 1, 10)
        writers[shard].producer.commit()
        return dict(recovered.known)

    def heir():
        with ThreadPoolExecutor(ZOMBIES) as pool:
            return list(pool.map(take_and_commit, range(ZOMBIES)))

    try:
        assert await start_child(zombie) == {"open": ZOMBIES}
        zombie.send(signal.SIGSTOP)
        assert await asyncio.to_thread(heir) == [{}] * ZOMBIES
        zombie.send(signal.SIGCONT)
        errors = (await asyncio.to_thread(zombie.next_line))["errors"]
    finally:
        await kill_child(zombie)
    assert [error for error in errors if not error] == []
    expected = Counter((stream_of(shard), sequence) for shard in range(ZOMBIES) for sequence in range(1, 11))
    assert await asyncio.to_thread(landed, clients, tenant, ZOMBIES) == expected
    print(f"{len(errors)} of {ZOMBIES} zombies committed nothing")


@pytest.fixture(scope="module")
def torn(tmp_path_factory):
    """A broker behind a line that tears."""
    with KafkaLine() as line:
        advertised = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{line.port}"}
        broker = KafkaBroker(tmp_path_factory.mktemp("torn"), properties=advertised)
        line.target = broker.port
        with broker:
            yield line


class Owned:
    """A tenant of one shard, owned for the test."""

    def __init__(self, line, tenant, writer=ShardWriter, producer=ShardProducer):
        self.tenant = tenant
        self.clients = provided(f"127.0.0.1:{line.port}", tenant, 1)
        self.answers = queue.SimpleQueue()
        self._changes = queue.SimpleQueue()

        def make_writer():
            return writer(self.clients, producer(self.clients, tenant, 0), Layout(1))

        self.shard = Shard(0, make_writer, BridgeSettings(transaction_ms=5), ShardListeners(self._changed))

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
        self.shard.submit(GatewayBatch(*make_batch(first, last, tenant=self.tenant), self.answers.put))
        assert self.answers.get(timeout=LIMIT_S) == ACCEPTED

    def check(self, last):
        assert landed(self.clients, self.tenant) == Counter((STREAM, sequence) for sequence in range(1, last + 1))


@pytest.fixture
def hurried(monkeypatch):
    """Commits are given up, and shards taken again, soon."""
    monkeypatch.setattr("fogline_cloud.shard.pace.LIMIT_S", 2.0)
    monkeypatch.setattr("fogline_cloud.shard.shard.RETAKE_S", 0.1)


@pytest.mark.parametrize("how", a_few(Tear, Tear.RESPONSE_LOST), ids=lambda how: how.name.lower())
@pytest.mark.fault("K2")
def test_takeover_after_a_commit_of_unknown_outcome(torn, tenant, hurried, how):
    """K2: the commit times out: the producer is destroyed, the shard taken afresh, its tail read, the batch settled."""
    with Owned(torn, tenant) as owned:
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

    class Late(ShardProducer):
        code = None

        def commit(self):
            if torn.torn > before and self._begun and Late.code is None:
                Late.code = 0
                self._producer.flush(60)
                Late.code = torn.deliver_copy()
            return super().commit()

    with Owned(torn, tenant, producer=Late) as owned:
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

    class Copied(ShardWriter):
        code = None

        def write_batch(self, batch, span, *headers):
            if span.first != 11 or Copied.code is not None:
                return super().write_batch(batch, span, *headers)
            events = batch.events()
            super().write_batch(Batch.of(events[:5]), span)
            assert self.producer._producer.flush(60) == 0
            Copied.code = torn.deliver_copy()
            wait_for(lambda: landed(self._clients, self.tenant)[STREAM, 15], "the copy commits nothing")
            return super().write_batch(Batch.of(events[5:]), span)

    with Owned(torn, tenant, Copied) as owned:
        owned.lands(1, 10)
        owned.lands(11, 20)
        owned.lands(21, 30)
        owned.check(30)
        assert Copied.code == 0
        assert owned.shard.counters.retaken >= 1
    print("torn commit, a late copy commits half of the next transaction: only the tail is believed, 30 of 30 events once")
