"""Reads what each place holds, for the judgement: the devices' book, Kafka, the table."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from demo.judgement import Evidence, Id
from demo.payload import METRICS, counter_of
from demo.place import SHARDS, TENANT, Place
from fogline.errors import Misconfigured
from fogline_cloud import topics
from fogline_cloud.kafka import KafkaClients
from fogline_cloud.reading import read_committed


def gather(place: Place, sent: Mapping[str, int]) -> Evidence:
    """Everything. Raises `Unreachable` or `Misconfigured` if something cannot be read."""
    return Evidence(read_book(place.book), sent, _kafka(place), _table(place.folder / "tables" / "readings"))


def read_book(book: Path) -> set[Id]:
    """What the devices wrote down; a last line that was cut off is none."""
    found = set()
    for line in book.read_text("utf-8").splitlines(keepends=True) if book.exists() else ():
        device, _, n = line.partition(" ")
        if line.endswith("\n"):
            found.add((device, int(n)))
    return found


def _kafka(place: Place) -> Counter[Id]:
    clients = KafkaClients({"bootstrap.servers": f"127.0.0.1:{place.ports.kafka}"})
    found: Counter[Id] = Counter()
    starts = {(topic, shard): None for topic in topics.raw_topics(TENANT) for shard in range(SHARDS)}
    for record in read_committed(clients, starts):
        headers = dict(record.headers)
        device = headers.get("device_id", b"").decode()
        n = counter_of(headers.get("content-type", b"").decode(), record.value)
        if n is not None and device not in place.gateways:
            found[device, n] += 1
    return found


def _table(path: Path) -> Counter[Id]:
    if not (path / "_delta_log").is_dir():
        return Counter()
    try:
        rows = DeltaTable(str(path)).to_pyarrow_table(columns=["device", "value"], filters=[("metric", "in", list(METRICS))])
    except DeltaError as error:
        raise Misconfigured(f"table {path} cannot be read: {error}") from None
    return Counter((row["device"], int(row["value"])) for row in rows.to_pylist())
