"""Lists as a client reads them from a bridge, and records of commands that stand in Kafka."""

from fogline.address import CommandAddress, DeviceAddress, shard_of
from fogline.amqp.security import ClientSecurity
from fogline_cloud.commands.record import CommandRecord, encode
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.listing import CommandQuery, DeviceQuery
from fogline_cloud.listing_client import Listing, read_list
from fogline_lab.amqp import within
from fogline_lab.line.line import Line

PLAIN = ClientSecurity()


def write(line: Line, *records: CommandRecord) -> None:
    """Write records of commands as their bridges do, in this order."""
    failed: list[object] = []
    producer = KafkaClients(line.cloud.kafka).publisher(lambda error, _: failed.append(error), 60)
    for each in records:
        partition = shard_of(each.gateway, line.cloud.shards)
        producer.produce(topics.commands(line.tenant), encode(each), each.id.encode(), partition=partition)
    assert (producer.flush(60), failed) == (0, [])


async def commands(line: Line, device: str = "", security: ClientSecurity = PLAIN, **query: object) -> Listing:
    """Read commands from the bridge."""
    asked = CommandQuery(**query)  # type: ignore[arg-type]
    address = CommandAddress(line.tenant, device)
    return await within(read_list(f"127.0.0.1:{line.port}", address, asked, security), "no list of commands")


async def devices(line: Line, device: str = "", security: ClientSecurity = PLAIN, **query: object) -> Listing:
    """Read devices from the bridge."""
    asked = DeviceQuery(**query)  # type: ignore[arg-type]
    address = DeviceAddress(line.tenant, device)
    return await within(read_list(f"127.0.0.1:{line.port}", address, asked, security), "no list of devices")


def ids(found: Listing) -> list[str]:
    """Return the ids of the commands, or the names of the devices."""
    return [each.get("id") or each["device"] for each in found.records]
