"""The registry of devices, as an operator edits and reads it."""

from fogline.address import DeviceAddress
from fogline.amqp.security import ClientSecurity
from fogline_cloud.devices.client import edit_device
from fogline_cloud.devices.device_table import DeviceTable
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.kafka.committed_records import read_committed
from fogline_lab.waiting import until_not

SWITCH = b'{"commands": {"switch": {"required": ["on"], "properties": {"on": {"type": "boolean"}}}}}'


async def edited(line, device: str, action: str, body: bytes = b"", where: str = ""):
    address = DeviceAddress(line.tenant, device)
    return await edit_device(where or f"127.0.0.1:{line.port}", address, action, body, security=ClientSecurity())


def registry(line) -> DeviceTable:
    """All devices, as they are on Kafka."""
    table = DeviceTable()
    for each in read_committed(
        KafkaClients(line.cloud.kafka), {(topics.devices(line.tenant), shard): None for shard in (0, 1)}
    ):
        table.apply(each.key, each.value)
    return table


async def known(bridge, condition) -> None:
    async def not_yet() -> bool:
        return not condition(bridge._devices.table)

    await until_not(not_yet, "the bridge does not read the change")
