"""The operator: sends commands to devices at a steady rate, whatever is killed, and waits for what became of them."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet

from demo.ble_payload import MOVE, TURN, order_body
from demo.orders import TTLS_S, Order, Recorded, order
from demo.payload import Device
from demo.picture import OrderNews
from demo.place import SHARDS, TENANT, Place
from fogline.command import State
from fogline.errors import FoglineError, Unreachable
from fogline.message import unpack_id
from fogline_cloud.bridge.recovery import read_commands
from fogline_cloud.commands.client import Ask, Operator
from fogline_cloud.commands.record import Record
from fogline_cloud.kafka import KafkaClients

RATE_S = 4.0
"""Commands a second."""
OVER_S = TTLS_S[-1] + 10.0 + 10.0
"""The longest that a command may take: its time to live, the bridge's grace, and a little for what was killed last."""
VALVE_EVERY = 3
"""Every so many commands one goes to a Bluetooth device."""
_LOOK_S = 1.0


class Commander:
    """`orders` is everything that was sent: to `devices`, and every third to those of `valves` that are in `heard`.

    A gateway is told by what comes from a device. MQTT and CoAP devices are awaited before this begins; Bluetooth ones
    come when their gateway has found them.
    """

    def __init__(
        self,
        place: Place,
        devices: Sequence[Device],
        news: OrderNews,
        *,
        valves: Sequence[str] = (),
        heard: AbstractSet[str] = frozenset(),
    ) -> None:
        self.orders: list[Order] = []
        self._place = place
        self._devices = devices
        self._news = news
        self._valves = valves
        self._heard = heard
        self._enough = asyncio.Event()
        self._waiting: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Send until `finish`; cancel it to close the connection."""
        async with Operator("127.0.0.1", self._place.ports.amqp[0], TENANT, name="demo-operator") as operator:
            due = time.monotonic()
            while not self._enough.is_set():
                self._send(operator)
                due = max(due + 1 / RATE_S, time.monotonic() - 1.0)
                await asyncio.sleep(max(0.0, due - time.monotonic()))
            await asyncio.Future()

    async def finish(self, in_vain: Callable[[], bool]) -> None:
        """Send no more, and wait until everything sent is over: at most `OVER_S`, and not if it is in vain."""
        self._enough.set()
        deadline = time.monotonic() + OVER_S
        while time.monotonic() < deadline and not in_vain():
            if not self._waiting and await asyncio.to_thread(self._all_over):
                return
            await asyncio.sleep(_LOOK_S)

    def _send(self, operator: Operator) -> None:
        n = len(self.orders) + 1
        valves = [each for each in self._valves if each in self._heard]
        if valves and n % VALVE_EVERY == 0:
            sent = order(n, random.choice(valves), ble=True)
        else:
            sent = order(n, random.choice(self._devices).name)
        self.orders.append(sent)
        self._news.sent = len(self.orders)
        task = asyncio.create_task(self._follow(operator, sent), name=f"command {sent.name}")
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    async def _follow(self, operator: Operator, sent: Order) -> None:
        """One command to its verdict."""
        began = time.monotonic()
        ask = Ask(
            sent.device,
            sent.verb or sent.name,
            b'{"on": true}' if sent.verb is None else order_body(sent.verb, sent.name),
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
        sent.state, sent.provisional = verdict.state, verdict.provisional
        self._news.states[sent.state] += 1
        if sent.state is State.SUCCEEDED:
            self._news.latency_ms.append(sent.took_s * 1000)

    def _all_over(self) -> bool:
        """Whether also what nobody awaits an answer of has its end."""
        try:
            return all(each.state.terminal for each in read_records(self._place))
        except FoglineError:
            return False


def read_records(place: Place) -> list[Recorded]:
    """The newest record of every command. Raises `Unreachable`."""
    clients = KafkaClients({"bootstrap.servers": f"127.0.0.1:{place.ports.kafka}"})
    found = [record for shard in range(SHARDS) for record in read_commands(clients, TENANT, shard)]
    return [Recorded(_name(each), each.device, each.state, each.provisional) for each in found]


def _name(record: Record) -> str:
    """An order's own name: what a Bluetooth device is told stands in the operator's id of it alone."""
    return str(unpack_id(record.correlation)) if record.name in (MOVE, TURN) else record.name


def read_effects(place: Place) -> Counter[tuple[str, str]]:
    """How often each device did each command; a last line that was cut off counts as well."""
    files = [each for each in (place.effects, place.ble_effects) if each.exists()]
    lines = [line for each in files for line in each.read_text("utf-8").splitlines()]
    return Counter((device, name) for device, _, name in (line.partition(" ") for line in lines))
