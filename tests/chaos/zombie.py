"""A bridge's shards that are stopped within their transactions, and want to go on when they are woken.

    python zombie.py BOOTSTRAP TENANT SHARDS

Says `{"open": n}` when every shard has a transaction open, each at another point of it; once it gets SIGCONT, it commits
all of them and says of each whether that went well. The transactions are those of `ShardWriter`.
"""

import json
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from fogline.errors import Unreachable
from fogline.events.codec import read_batch
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.shard.checkpoint import Layout, ShardOwner
from fogline_cloud.shard.producer import ShardProducer
from fogline_cloud.shard.shard_writer import ShardWriter
from fogline_lab.events import make_batch

encoding = threading.Lock()
"""Batches are made on a gateway's loop: one at a time."""
POINTS = ("nothing begun", "produced", "flushed", "half produced")


def stream_of(shard: int) -> str:
    return f"{shard:016x}"


def produce(writer: ShardWriter, tenant: str, shard: int, first: int, last: int) -> None:
    with encoding:
        span, message = make_batch(first, last, tenant=tenant, stream=stream_of(shard))
    writer.write_batch(read_batch(span, message), span)


def begin(writer: ShardWriter, tenant: str, shard: int) -> None:
    """Take the shard, and come to its point."""
    writer.take(ShardOwner("zombie", "127.0.0.1:1"))
    point = POINTS[shard % len(POINTS)]
    if point != "nothing begun":
        produce(writer, tenant, shard, 1, 5 if point == "half produced" else 10)
    if point in {"flushed", "half produced"}:
        assert writer.producer._producer.flush(60) == 0


def go_on(writer: ShardWriter, tenant: str, shard: int) -> str:
    """Continue as if nothing had happened. Return the error, empty if the transaction was committed."""
    point = POINTS[shard % len(POINTS)]
    try:
        if point in {"nothing begun", "half produced"}:
            produce(writer, tenant, shard, 1 if point == "nothing begun" else 6, 10)
        writer.producer.commit()
    except Unreachable as error:
        return str(error)
    return ""


def main(bootstrap: str, tenant: str, count: int) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCONT})
    clients = KafkaClients({"bootstrap.servers": bootstrap})
    writers = [ShardWriter(clients, ShardProducer(clients, tenant, shard), Layout(count)) for shard in range(count)]
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(begin, writers, [tenant] * count, range(count)))
        print(json.dumps({"open": count}), flush=True)
        signal.sigwait({signal.SIGCONT})
        errors = list(pool.map(go_on, writers, [tenant] * count, range(count)))
    print(json.dumps({"errors": errors}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
