"""A shard over a line to Kafka that is too slow for a large transaction: it commits smaller ones, or takes longer."""

import asyncio
from collections import Counter
from contextlib import asynccontextmanager

import pytest

from cloud.shard.shard_bench import Answers, Bench
from fogline.amqp.outcome import ACCEPTED
from fogline_cloud.shard import pace
from fogline_cloud.shard import shard as shard_module
from fogline_cloud.shard.shard import Shard
from fogline_lab.amqp import within
from fogline_lab.events import make_batch, make_noise
from fogline_lab.kafka_broker import KafkaBroker
from fogline_lab.tcp_line import TcpLine

RATE_BYTES_S = 250_000
TRANSACTION_S = 2.0
"""Time of a transaction: 500 kB fit into one."""
PICTURE_BYTES = 100_000


@asynccontextmanager
async def slow_shard(tenant, folder, monkeypatch):
    """A tenant, and its one shard, on a broker behind a slow line."""
    monkeypatch.setattr(pace, "LIMIT_S", TRANSACTION_S)
    monkeypatch.setattr(shard_module, "RETAKE_S", 0.1)
    async with TcpLine(0) as line:
        advertised = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{line.port}"}
        with KafkaBroker(folder / "kafka", properties=advertised) as broker:
            line.target = broker.port
            bench = await asyncio.to_thread(Bench, broker, tenant)
            shard = await asyncio.to_thread(bench.shard, transaction_ms=500)
            line.bits_per_s = 8 * RATE_BYTES_S
            try:
                yield bench, shard
            finally:
                line.bits_per_s = 0
                shard.stop()
                await asyncio.to_thread(shard.join, 30)


def submit(shard: Shard, answers: Answers, gateway: int, events: int, event_bytes: int, tenant: str) -> None:
    data = make_noise(event_bytes, gateway)
    stream = f"{gateway:016x}"
    answers.submit(shard, make_batch(1, events, tenant=tenant, gateway=f"gw-{gateway}", stream=stream, data=data))


@pytest.mark.fault("K14")
async def test_work_that_is_too_large_for_one_transaction_is_committed_in_smaller_ones(tenant, folder, monkeypatch):
    """All of it is there at once, so the first transaction holds all of it, and fails."""
    async with slow_shard(tenant, folder, monkeypatch) as (bench, shard):
        answers = Answers()
        for gateway in range(16):
            submit(shard, answers, gateway, 1, PICTURE_BYTES, tenant)
        submit(shard, answers, 16, 5, 20, tenant)
        found = [await within(asyncio.to_thread(answers.next), "the shard does not go on", 60) for _ in range(17)]
        assert set(found) == {ACCEPTED}
        assert shard.counters.retaken >= 1, "the line is not slow enough for this test"
        landed = Counter(stream for stream, _ in await asyncio.to_thread(bench.landed))
        assert landed == {**{f"{gateway:016x}": 1 for gateway in range(16)}, f"{16:016x}": 5}


@pytest.mark.slow
@pytest.mark.fault("K14")
async def test_a_batch_that_is_too_large_for_the_time_of_a_transaction_gets_more_time(tenant, folder, monkeypatch):
    async with slow_shard(tenant, folder, monkeypatch) as (bench, shard):
        answers = Answers()
        submit(shard, answers, 1, 9, PICTURE_BYTES, tenant)
        assert await within(asyncio.to_thread(answers.next), "the batch does not land", 60) == ACCEPTED
        assert shard.counters.retaken >= 1, "the line is not slow enough for this test"
        assert len(await asyncio.to_thread(bench.landed)) == 9
