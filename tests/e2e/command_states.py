"""What Kafka says of a tenant's commands."""

import asyncio

from fogline.commands.command import CommandState
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.shard.recovery import read_commands
from fogline_lab.waiting import until_not


async def in_state(line, *states: CommandState) -> str:
    """Wait until a command has one of these states in Kafka, and return its id."""
    clients, found = KafkaClients(line.cloud.kafka), []

    def read():
        every = (each for shard in range(2) for each in read_commands(clients, line.tenant, shard))
        found[:] = [each for each in every if each.state in states]
        return found

    async def not_yet() -> bool:
        return not await asyncio.to_thread(read)

    await until_not(not_yet, f"no command is {states}")
    return found[0].id
