"""Reads the evidence for the judgement: event ids from the devices' file, Kafka and the table."""

from collections import Counter
from collections.abc import Iterator, Mapping
from operator import itemgetter
from pathlib import Path
from sys import intern
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from demo.ble_judgement import BleEvidence
from demo.ble_payload import METRIC, advertised_n, read_n
from demo.judgement import Id, RunEvidence
from demo.payload import METRICS, counter_of
from demo.row_watch import RowWatch
from demo.workspace import SHARDS, TENANT, Workspace
from fogline.advertisement import CONTENT_TYPE as ADVERTISEMENT
from fogline.errors import Misconfigured
from fogline_cloud.flows.tables.files import TableFolder
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.kafka.committed_records import CommittedRecord, read_committed
from fogline_cloud.kafka.records import is_replayed

_BLE = "application/vnd.fogline-ble-"


def gather(workspace: Workspace, sent: Mapping[str, int]) -> RunEvidence:
    """Read all evidence. Raises `Unreachable` or `Misconfigured` if something cannot be read."""
    return RunEvidence(
        read_book(workspace.acknowledged_file), sent, _kafka(workspace), _table(workspace.folder / "tables" / "readings")
    )


def read_book(acknowledged_file: Path) -> set[Id]:
    """Read the ids of a file of the devices, without a last line that is incomplete."""
    return {each for each, _ in _lines(acknowledged_file)}


def read_times(acknowledged_file: Path) -> dict[Id, float]:
    """Read when each event was acknowledged, on the monotonic clock."""
    return {each: float(at) for each, at in _lines(acknowledged_file)}


def read_visible(watch: RowWatch) -> dict[Id, float]:
    """Read when delta-rs first saw each row of `readings` with a counter, from the table's files."""
    found: dict[Id, float] = {}
    wanted = pc.field("metric").isin(METRICS)
    for path, seen_s in sorted(watch.seen_s.items(), key=itemgetter(1)):
        rows = pq.read_table(path, columns=["device", "value"], filters=wanted, partitioning=None)
        for device, value in zip(rows.column("device").to_pylist(), rows.column("value").to_pylist(), strict=True):
            found.setdefault((device, int(value)), seen_s)
    return found


def _lines(acknowledged_file: Path) -> Iterator[tuple[Id, str]]:
    if not acknowledged_file.exists():
        return
    with acknowledged_file.open(encoding="utf-8") as lines:
        for line in lines:
            if line.endswith("\n"):
                device, n, *at_s = line.split()
                yield (intern(device), int(n)), next(iter(at_s), "0")


def gather_ble(workspace: Workspace) -> BleEvidence:
    """Read the evidence of the Bluetooth advertisers. Raises as `gather`."""
    kafka: Counter[tuple[str, Id]] = Counter()
    for record in _records(workspace):
        headers = dict(record.headers)
        if headers.get("content-type") == ADVERTISEMENT.encode():
            n = advertised_n(record.value or b"")
            device, gateway = (intern(headers[name].decode()) for name in ("device_id", "ce_gateway"))
            kafka[gateway, (device, -1 if n is None else n)] += 1
    names = [each.name for each in workspace.ble if each.advertises]
    rows = _read(workspace.folder / "tables" / "readings", [("metric", "=", METRIC), ("device", "in", names)])
    return BleEvidence(read_book(workspace.on_air), kafka, Counter((device, read_n(value)) for device, value in rows))


def _kafka(workspace: Workspace) -> Counter[Id]:
    """Count the records of each event. A copy that is marked as sent again does not count: consumers discard it by its id."""
    found: Counter[Id] = Counter()
    known: set[tuple[bytes, bytes]] = set()
    again: list[tuple[tuple[bytes, bytes], Id]] = []
    for record in _records(workspace):
        headers = dict(record.headers)
        identity = headers.get("ce_source", b""), headers.get("ce_id", b"")
        device = intern(headers.get("device_id", b"").decode())
        media_type = headers.get("content-type", b"").decode()
        n = None if media_type.startswith(_BLE) else counter_of(media_type, record.value)
        if n is None or device in workspace.gateways:
            continue
        if is_replayed(headers):
            again.append((identity, (device, n)))
        else:
            known.add(identity)
            found[device, n] += 1
    for identity, event in again:
        if identity not in known:
            known.add(identity)
            found[event] += 1
    return found


def _records(workspace: Workspace) -> Iterator[CommittedRecord]:
    clients = KafkaClients({"bootstrap.servers": f"127.0.0.1:{workspace.ports.kafka}"})
    return read_committed(clients, {(topic, shard): None for topic in topics.raw_topics(TENANT) for shard in range(SHARDS)})


def _table(path: Path) -> Counter[Id]:
    return Counter((device, int(value)) for device, value in _read(path, [("metric", "in", list(METRICS))]))


def _read(path: Path, filters: list[tuple[str, str, Any]]) -> Iterator[tuple[str, float]]:
    """Yield device and value of rows of `readings`."""
    if not (path / "_delta_log").is_dir():
        return
    try:
        rows = DeltaTable(str(path)).to_pyarrow_table(
            columns=["device", "value"], filters=filters, filesystem=TableFolder(str(path)).for_scans()
        )
    except DeltaError as error:
        raise Misconfigured(f"table {path} cannot be read: {error}") from None
    for batch in rows.to_batches():
        devices, values = (batch.column(name).to_pylist() for name in ("device", "value"))
        yield from ((intern(device), value) for device, value in zip(devices, values, strict=True))
