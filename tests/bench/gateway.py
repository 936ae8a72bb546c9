"""MQTT QoS 1 in, AMQP out: the gateway's own process, a publisher and a peer that only accepts."""

import sqlite3
import time

from processes import Bench, Failed

GROUP = 256
ROW = b"x" * 420  # as many bytes as a row of the outbox has for 100 bytes of JSON
CONNECTIONS = 8
WINDOW = 200


def measure(bench: Bench) -> dict[str, float]:
    """The gateway beside a bare loop into SQLite."""
    events = bench.events
    bare = bare_sqlite(bench)
    with (
        bench.child("null_peer", *bench.program("null_peer")) as peer,
        bench.gateway("gw", peer.line()["port"]) as (gateway, mqtt_port),
        bench.child("publisher", *bench.program("publisher"), mqtt_port, events, CONNECTIONS, WINDOW) as publisher,
    ):
        publisher.line()
        before, began = gateway.cpu_s(), time.perf_counter()
        publisher.tell("go")
        took_s = publisher.line(300)["seconds"]
        counted = wait_for(peer, events)
        through_s = time.perf_counter() - began
        return {
            "gateway.sqlite": bare,
            "gateway.acknowledged": events / took_s,
            "gateway.settled": events / through_s,
            "gateway.ratio": events / took_s / bare,
            "gateway.cpu": (gateway.cpu_s() - before) / events * 1000,
            "gateway.rss": gateway.peak_rss_mib(),
            "gateway.wire": counted["bytes"] / counted["events"],
        }


def bare_sqlite(bench: Bench) -> float:
    """Rows a second of the same size in groups of the same size, `synchronous=FULL`, and nothing else."""
    connection = sqlite3.connect(bench.subfolder("bare") / "bare.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE event (sequence INTEGER PRIMARY KEY, body BLOB)")
    began = time.perf_counter()
    for first in range(0, bench.events, GROUP):
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO event VALUES (?, ?)", [(n, ROW) for n in range(first, first + GROUP)])
        connection.execute("COMMIT")
    seconds = time.perf_counter() - began
    connection.close()
    return bench.events / seconds


def wait_for(peer, events: int, limit_s: float = 120.0) -> dict[str, int]:
    """Until the peer has counted all of them."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        peer.tell("counts")
        counted = peer.line()
        if counted["events"] >= events:
            return counted
        time.sleep(0.02)
    raise Failed(f"the peer got {counted['events']} of {events} events in {limit_s:.0f} s")
