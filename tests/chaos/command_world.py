"""Operators, bridges, a gateway and a device, with the real code that decides about commands, and without sockets.

A test chooses when a message arrives, a transaction commits, a process dies or time passes. What is durable is `truth` (the
topic `fogline.commands`), `journal` (the gateway's file) and `replies` (the lane `reply`).
"""

import sqlite3
from collections import Counter, deque
from dataclasses import dataclass, field
from types import SimpleNamespace

from chaos import gateway_copies
from chaos.device_line import DeviceLine
from chaos.reply_event import reply_event
from chaos.virtual_loop import VirtualLoop
from fogline.address import CommandAddress
from fogline.amqp.outcome import ACCEPTED, DeliveryState, Outcome
from fogline.commands.cancel import decode_cancel, is_cancel
from fogline.commands.command import CommandState, Deadline, Reply, decode_command, decode_query, is_command
from fogline.commands.signature import TrustedKeys
from fogline.errors import Poison, Unreachable
from fogline.events.codec import Beacon
from fogline.message import Message
from fogline_cloud.access.principal import Principal, PrincipalKind
from fogline_cloud.bridge.commands.cancels import outcome_of
from fogline_cloud.bridge.commands.early_verdicts import EarlyVerdicts
from fogline_cloud.commands.command_id import CommandIds
from fogline_cloud.commands.record import CommandRecord
from fogline_cloud.commands.registry import Registry
from fogline_cloud.commands.reply_lane import check_replies
from fogline_cloud.shard.work.command_changes import CommandChange
from fogline_edge.downlink import journal
from fogline_edge.downlink.downlink import Downlink
from fogline_edge.outbox.file.data_folder import journal_name
from fogline_edge.outbox.file.schema import migrate
from fogline_edge.outbox.rows.group import Group
from fogline_lab.bridge.command_side import CommandSide

IDS = CommandIds(b"k" * 32)
OPERATOR = Principal(PrincipalKind.CLIENT, "acme", "op-1", "password")
ADDRESS = CommandAddress("acme", "lamp-1")
LANDING = object()
"""Work of a shard: an event of lane `reply`."""


@dataclass
class Sent:
    """A message on a control link, and the future of its outcome."""

    message: Message
    outcome: object


class Bridge:
    """One life of a bridge, whose shard commits when `commit` is called. It is also the shard, and the control link."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.ready = True
        self.changes: deque = deque()
        self.wire: deque[Sent] = deque()
        self.side = CommandSide(self, world.wall_ms)
        self.early = EarlyVerdicts(self.side.table, "acme", lambda _gateway, _device: True)
        self.side.routes.recall("lamp-1", "gw-1", 1)
        self.side.table.learn(world.truth.everything())
        self.side.table.add_reply_link(("op-1", "me"), self)
        self.closed, self.link = False, None

    def submit(self, work) -> None:
        self.changes.append(work)

    def send(self, message: Message):
        """Send on the control link, or a reply to the operator, who accepts it."""
        outcome = self.world.loop.create_future()
        if message.properties.get("fogline"):
            self.wire.append(Sent(message, outcome))
        else:
            self.world.hear(message)
            outcome.set_result(ACCEPTED)
        return outcome

    def commit(self) -> None:
        """Commit the oldest change."""
        if self.changes:
            change = self.changes.popleft()
            if change is LANDING:
                self.world.land()
            elif isinstance(change, CommandChange):
                change.perform(SimpleNamespace(registry=self.world.truth, writer=self))()

    def write_command(self, record: CommandRecord) -> None:
        """Note the order in which durable commands are accepted."""
        if record.state is CommandState.ACCEPTED and record.durable and record.id not in self.world.accepted:
            self.world.accepted.append(record.id)

    def cut(self) -> None:
        """Lose the gateway's connection, with all that was on its way."""
        self.side.gateways._by_name.clear()
        lost, self.wire = self.wire, deque()
        for each in lost:
            if not each.outcome.done():
                each.outcome.set_exception(Unreachable("it is gone"))


class Gateway:
    """One life of the gateway process. It is its outbox, that outbox's port and clock, and the executor of its device."""

    tenant, gateway, max_bytes, crowded = "acme", "gw-1", 2**40, False
    identity = (tenant, gateway)

    def __init__(self, world: "World") -> None:
        self.world = world
        self.port = self.clock = self
        self.connection = world.journal
        self.acts: deque = deque()
        self.committed: deque = deque()
        self.journal = journal_name(self.connection)
        self.alive = True
        self.downlink = Downlink(self, TrustedKeys())
        starting = self.downlink.start()
        try:
            while True:
                starting.send(None)
        except StopIteration:
            pass

    async def read_journal(self, read):
        return read(self.connection, self.identity)

    def beacon(self) -> Beacon:
        return Beacon(self.world.boot, int(self.world.loop.time() * 1000))

    def time_ns(self) -> int:
        return self.world.wall_ms() * 1_000_000

    def is_right(self) -> bool:
        return True

    def act(self, run, done, **_) -> None:
        if self.alive:
            self.acts.append((run, done))

    def put_when_room(self, letter, done) -> None:
        """Dead letters are of no interest here."""

    def commit(self) -> None:
        """Commit all that waits. The callbacks come with `notify`."""
        group, taken = Group(int(self.world.loop.time())), []
        self.take = lambda _, waiting: taken.append(waiting.arrival)
        self.connection.execute("BEGIN")
        while self.acts:
            run, done = self.acts.popleft()
            self.committed.append((done, run(self, group)))
        self.connection.execute("COMMIT")
        self.world.replies.extend(taken)
        gateway_copies.store_replies(self.world)

    def notify(self) -> None:
        while self.committed:
            done, result = self.committed.popleft()
            done(result)

    def execute(self, command) -> None:
        if self.alive:
            self.world.line.execute(command)

    def abandon(self, command) -> None:
        self.world.line.abandon(command)


@dataclass
class World:
    """Everything, and the steps of each part."""

    loop: VirtualLoop = field(default_factory=VirtualLoop)
    truth: Registry = field(default_factory=Registry)
    replies: list = field(default_factory=list)  # the lane, in order
    landed: int = 0
    boot: str = "boot-1"
    jump_ms: int = 0
    effects: Counter = field(default_factory=Counter)
    at_device: list[str] = field(default_factory=list)
    accepted: list[str] = field(default_factory=list)  # the durable commands, in the order of their commits
    done: list[str] = field(default_factory=list)  # the commands that the device did, in their order
    heard: dict[str, Message] = field(default_factory=dict)  # the operator's newest answer to each command
    asked: dict[str, Message] = field(default_factory=dict)  # by command id
    settled: list[tuple[str, Outcome]] = field(default_factory=list)
    cancels: list[tuple[str, int, Outcome]] = field(default_factory=list)  # command, attempt, outcome

    def __post_init__(self) -> None:
        self.journal = sqlite3.connect(":memory:", isolation_level=None)
        migrate(self.journal)
        gateway_copies.begin(self)
        self.line = DeviceLine(self)
        self.bridge: Bridge = self.loop.call(Bridge, self)
        self.gateway: Gateway = self.loop.call(Gateway, self)
        self.zombies: list[Bridge] = []
        self.reachable = False

    def wall_ms(self) -> int:
        return 1_790_000_000_000 + int(self.loop.time() * 1000) + self.jump_ms

    # --- the operator

    def ask(self, number: int, **other) -> str:
        """Send a command, or a copy of it. `number` is its message id."""
        attributes = {
            "message_id": number,
            "subject": "switch",
            "reply_to": "command_response/acme/me",
            "body": b"%d" % number,
            **other,
        }
        command_id = IDS.of_message("acme", "op-1", "me", f"ulong:{number}")
        known = self.truth.get(command_id)
        if known is not None and known.released:  # a copy is a new attempt: what was heard was about the former one
            self.heard.pop(command_id, None)
        self.send(self.asked.setdefault(command_id, Message(**attributes)), command_id)
        return command_id

    def send(self, message: Message, command_id: str) -> None:
        def settle(_, outcome):
            self.settled.append((command_id, outcome))

        quota = {"check_quota": lambda: None, "count": lambda **_: None, "queue": lambda *_: None}
        peer = SimpleNamespace(principal=OPERATOR, forwarded=False, settle=settle, settle_command=settle, **quota)
        self.loop.call(self.bridge.side.operators.received, peer, None, message, ADDRESS)

    def cancel(self, command_id: str) -> None:
        def decided(record):
            if record is not None:
                self.cancels.append((command_id, record.attempt, outcome_of(record)))

        def run():
            try:
                self.bridge.side.operators.cancels.cancel(command_id, OPERATOR, decided)
            except Poison as error:
                assert error.reason == "unknown-command"  # noqa: PT017 - it may be raised or not

        self.loop.call(run)

    def hear(self, message: Message) -> None:
        self.heard[str(message.properties["command_id"])] = message

    # --- between bridge and gateway

    def connect(self) -> None:
        """The gateway says hello to the bridge, which sends what is open."""
        self.disconnect()
        now_ms, at_s = self.gateway.beacon(), self.loop.time()

        def deadline(left_ms, known=None):
            if known is not None and known.boot_id == now_ms.boot_id:
                return known
            return Deadline(now_ms.boot_id, now_ms.boottime_ms + int((self.loop.time() - at_s) * 1000) + left_ms)

        principal = SimpleNamespace(name="gw-1")
        journal = self.gateway.journal
        peer = SimpleNamespace(principal=principal, control=self.bridge, welcomed=True, deadline=deadline, journal=journal)
        self.loop.call(self.bridge.side.connect, peer)

    def disconnect(self) -> None:
        for each in (self.bridge, *self.zombies):
            self.loop.call(each.cut)
        self.zombies.clear()

    def deliver(self) -> None:
        """The gateway gets the oldest message of its connection, which is that of a zombie if there is one."""
        bridge = next((each for each in (*self.zombies, self.bridge) if each.wire), None)
        if bridge is None:
            return
        sent = bridge.wire.popleft()
        message = sent.message
        if is_command(message):
            value = decode_command(message)
        else:
            value = decode_cancel(message) if is_cancel(message) else decode_query(message)

        def settle(outcome):
            if not sent.outcome.done() and bridge.side.gateways.get("gw-1") is not None:
                sent.outcome.set_result(outcome)

        self.loop.call(self.gateway.downlink.received, value, settle)

    def upload(self) -> None:
        """The bridge gets the next event of lane `reply`. It lands in its order among the changes of the shard."""
        arrived = self.landed + self.bridge.changes.count(LANDING)
        if arrived < len(self.replies):
            self.bridge.changes.append(LANDING)
            self.loop.call(self.bridge.early.take, [reply_event(arrived + 1, self.replies[arrived])])

    def land(self) -> None:
        """The oldest event of lane `reply` lands, exactly once."""
        self.landed += 1
        event = reply_event(self.landed, self.replies[self.landed - 1])
        checked = check_replies([event], self.truth.get, issued=IDS.issued, tenant="acme", now_ms=self.wall_ms())
        assert not checked.refused
        for record in checked.records:
            self.truth.put(record)
        gateway_copies.store_replies(self)
        self.bridge.side.table.learn(checked.records)

    # --- the device

    def set_reachable(self, *, reachable: bool) -> None:
        self.reachable = reachable
        if reachable:
            self.line.resume()
        else:
            self.line.end_connection()
        port = self.gateway.downlink
        self.loop.call(port.reachable if reachable else port.unreachable, "lamp-1", self.gateway)

    def adapter(self, step: str) -> None:
        """The adapter's oldest command reaches the device, is certainly not sent, or is lost with or without an effect."""
        command_id = self.line.take()
        if command_id is None:
            return
        if step in ("reach", "reach and lose"):
            self.line.begin(command_id)
        if step == "not sent":
            self.loop.call(self.gateway.downlink.not_sent, command_id)
        elif step != "reach":
            self.loop.call(self.gateway.downlink.lost, command_id)

    def answer(self, *, again: bool) -> None:
        """The device answers what it did first; with `again`, it will answer once more."""
        if not self.at_device:
            return
        command_id = self.at_device[0] if again else self.at_device.pop(0)
        self.loop.call(self.gateway.downlink.answer, "lamp-1", command_id, Reply(200, b"done"), lambda _: None)

    # --- crashes

    def bridge_dies(self, *, zombie: bool) -> None:
        """The next bridge takes the shard. The former one keeps the gateway's connection, or is dead."""
        former, self.bridge = self.bridge, None
        self.loop.call(former.side.close)
        if zombie:
            former.submit = lambda _: None  # it is fenced: nothing of it is committed any more
            former.side.table.replies._queues.clear()
            self.zombies.append(former)
        else:
            self.loop.call(former.cut)
        former.changes.clear()
        self.bridge = self.loop.call(Bridge, self)

    def gateway_dies(self, *, reboot: bool) -> None:
        self.disconnect()
        gateway_copies.note_doubts(self)
        self.gateway.alive = False
        self.gateway.downlink.close()
        self.line.restart()
        if reboot:
            self.boot = f"boot-{int(self.boot.removeprefix('boot-')) + 1}"
        self.gateway = self.loop.call(Gateway, self)
        if self.reachable:
            self.set_reachable(reachable=True)

    # --- the end

    def settle_down(self) -> None:
        """Everything works again until nothing more happens."""
        if self.zombies or not self.bridge.side.gateways.names:
            self.connect()
        for _ in range(4):
            for _ in range(200):
                waits = self.bridge.wire or self.bridge.changes or self.gateway.acts or self.gateway.committed
                if not waits and self.landed == len(self.replies):
                    break
                self.step_all()
            self.loop.advance(3600)
            self.connect()
            for command_id in [each for each in self.asked if each not in self.old]:
                self.ask_again(command_id)

    def step_all(self) -> None:
        self.deliver()
        self.loop.call(self.gateway.commit)
        self.loop.call(self.gateway.notify)
        self.upload()
        while self.bridge.changes:
            self.loop.call(self.bridge.commit)

    def ask_again(self, command_id: str) -> None:
        """An operator without a verdict sends a copy."""
        outcomes = [outcome for settled, outcome in self.settled if settled == command_id]
        told = outcomes and outcomes[-1].state in (DeliveryState.REJECTED, DeliveryState.RELEASED)
        if command_id not in self.heard and not told:
            self.send(self.asked[command_id], command_id)

    def journal_state(self, command_id: str) -> CommandState | None:
        return journal._state(self.gateway, command_id)
