"""Operator: sends commands to devices at a steady rate, whatever is killed, and waits for their results."""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet

from demo.ble_payload import MOVE, TURN, command_body
from demo.certificates import HOST
from demo.operator_commands import DURABLE_TTLS_S, CommandRow, SentCommand, planned_command
from demo.payload import Device
from demo.snapshot import CommandStats
from demo.workspace import SHARDS, TENANT, Workspace
from fogline.commands.command import CommandState
from fogline.errors import FoglineError, Unreachable
from fogline.message import unpack_id
from fogline_cloud.commands.client.operator import DOUBT_S, Ask, Operator
from fogline_cloud.commands.client.operator_security import operator_security
from fogline_cloud.commands.record import CommandRecord
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.shard.recovery import read_commands

RATE = 4.0
"""Commands per second, unless another rate is given."""
OVER_S = DURABLE_TTLS_S[-1] + DOUBT_S + 10.0
"""The longest time to a result: the time to live, the operator's patience with a doubt, and a reserve for the last restart."""
VALVE_EVERY = 3
"""One command of so many goes to a Bluetooth device."""
_LOOK_S = 1.0


class Commander:
    """`commands`: all that were sent, to `devices`, and every third to one of `valves` that is in `heard`.

    The bridge learns the gateway of a device from the device's events. MQTT and CoAP devices must have sent some before
    `run`; Bluetooth devices join when their gateway has found them. `rate`: commands per second.
    """

    def __init__(
        self,
        workspace: Workspace,
        devices: Sequence[Device],
        stats: CommandStats,
        *,
        valves: Sequence[str] = (),
        heard: AbstractSet[str] = frozenset(),
        rate: float = RATE,
    ) -> None:
        self.commands: list[SentCommand] = []
        self._workspace = workspace
        self._devices = devices
        self._stats = stats
        self._valves = valves
        self._heard = heard
        self._rate = rate
        self._enough = asyncio.Event()
        self._waiting: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Send until `finish`; cancel it to close the connection."""
        security = operator_security(self._workspace.operator, HOST)
        port = self._workspace.ports.amqp[0]
        async with Operator(HOST, port, TENANT, name="demo-operator", security=security) as operator:
            due = time.monotonic()
            while not self._enough.is_set():
                self._send(operator)
                due = max(due + 1 / self._rate, time.monotonic() - 1.0)
                await asyncio.sleep(max(0.0, due - time.monotonic()))
            await asyncio.Future()

    async def finish(self, in_vain: Callable[[], bool]) -> None:
        """Send no more, and wait until all commands have ended: at most `OVER_S`, and not after `in_vain`."""
        self._enough.set()
        deadline = time.monotonic() + OVER_S
        while time.monotonic() < deadline and not in_vain():
            if not self._waiting and await asyncio.to_thread(self._all_over):
                return
            await asyncio.sleep(_LOOK_S)

    def _send(self, operator: Operator) -> None:
        n = len(self.commands) + 1
        valves = [each for each in self._valves if each in self._heard]
        if valves and n % VALVE_EVERY == 0:
            sent = planned_command(n, random.choice(valves), ble=True)
        else:
            sent = planned_command(n, random.choice(self._devices).name)
        sent.sent_s = time.time()
        self.commands.append(sent)
        self._stats.sent = len(self.commands)
        task = asyncio.create_task(self._follow(operator, sent), name=f"command {sent.name}")
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    async def _follow(self, operator: Operator, sent: SentCommand) -> None:
        """Send one command and wait for its result."""
        began = time.monotonic()
        ask = Ask(
            sent.device,
            sent.verb or sent.name,
            b'{"on": true}' if sent.verb is None else command_body(sent.verb, sent.name),
            "application/json" if sent.verb is None else "application/octet-stream",
            ttl_s=sent.ttl_s,
            durable=sent.durable,
            idempotent=sent.idempotent,
            reply=sent.reply,
            message_id=sent.name,
        )
        try:
            verdict = await operator.request(ask)
        except Unreachable:
            return
        sent.took_s = time.monotonic() - began
        sent.ended_s = time.time()
        sent.state, sent.provisional = verdict.state, verdict.provisional
        self._stats.states[sent.state] += 1
        if sent.state is CommandState.SUCCEEDED:
            self._stats.latency_ms.append(sent.took_s * 1000)

    def _all_over(self) -> bool:
        """Return True if every command has a final record, one-way commands too."""
        try:
            return all(each.state.terminal for each in read_records(self._workspace))
        except FoglineError:
            return False


def read_records(workspace: Workspace) -> list[CommandRow]:
    """Read the newest record of every command. Raises `Unreachable`."""
    clients = KafkaClients({"bootstrap.servers": f"127.0.0.1:{workspace.ports.kafka}"})
    found = [record for shard in range(SHARDS) for record in read_commands(clients, TENANT, shard)]
    return [CommandRow(_name(each), each.device, each.state, each.provisional) for each in found]


def _name(record: CommandRecord) -> str:
    """Return the command's unique name; for a Bluetooth device, only the operator's message id has it."""
    return str(unpack_id(record.correlation)) if record.name in (MOVE, TURN) else record.name
