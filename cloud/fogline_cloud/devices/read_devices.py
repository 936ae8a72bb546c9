"""Reads the registry of devices from Kafka."""

from fogline_cloud import topics
from fogline_cloud.committed_records import read_committed
from fogline_cloud.devices.device_table import DeviceTable
from fogline_cloud.kafka import KafkaClients


def read_devices(clients: KafkaClients, tenant: str, shards: int) -> DeviceTable:
    """Return all devices of a tenant as they are on Kafka now. Raises `Unreachable`."""
    table = DeviceTable()
    for record in read_committed(clients, {(topics.devices(tenant), shard): None for shard in range(shards)}):
        table.apply_or_log(record.key, record.value)
    return table
