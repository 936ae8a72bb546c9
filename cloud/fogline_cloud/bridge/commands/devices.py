"""The registry of devices, and the links on which operators change it. All methods run on the loop."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial

import msgspec

from fogline.address import Address, DeviceAddress, shown
from fogline.amqp.events import Delivery, Link
from fogline.amqp.outcome import RELEASED, Outcome
from fogline.errors import Poison, Unreachable
from fogline.message import Message, pack_id
from fogline.process.loop_calls import call_soon, on_thread
from fogline_cloud.access.policy import Action, Policy
from fogline_cloud.access.principal import Principal
from fogline_cloud.bridge.commands.device_feed import DeviceFeed
from fogline_cloud.bridge.credentials.device_keys import DeviceKeyring
from fogline_cloud.bridge.group.shard_table import ShardTable
from fogline_cloud.bridge.peers.forwarding import Forwarder
from fogline_cloud.bridge.peers.peer import LinkHandler, Peer
from fogline_cloud.commands.record import CommandRecord
from fogline_cloud.commands.request import reply_owner
from fogline_cloud.credentials.key_edits import KEY_ACTIONS, KeyEdit
from fogline_cloud.device_address import device_of
from fogline_cloud.devices.argument_check import refusal_of
from fogline_cloud.devices.desired import read_want
from fogline_cloud.devices.device_table import DeviceEntry, DeviceTable
from fogline_cloud.devices.edits import IF_VERSION, WANT, DeviceEdit, check_edit, request_of
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.settings import CloudSettings
from fogline_cloud.shard.work.device_changes import DeviceChange, DeviceRemoval

CREDIT = 100
"""Changes that an operator may have in flight on one link."""
MAX_WHO = 512
READ_S = 10.0
"""Time in which the table gets what Kafka has."""

_log = logging.getLogger("fogline.devices")


class Devices:
    """The registry of one bridge: the table of all devices, and the way to change one.

    `types` returns the commands by type of device.
    """

    def __init__(
        self,
        clients: KafkaClients,
        settings: CloudSettings,
        shards: ShardTable,
        *,
        types: Callable[[], Mapping[str, str]],
    ) -> None:
        self.table = DeviceTable()
        self._clients = clients
        self._partitions = [(topics.devices(settings.tenant), shard) for shard in range(settings.shards)]
        self._shards = shards
        self._types = types
        self._loop = asyncio.get_running_loop()
        self.on_change: list[Callable[[str], None]] = []
        on_loop = partial(call_soon, self._loop)
        self._feed = DeviceFeed(
            clients,
            settings.tenant,
            settings.shards,
            self.table,
            on_change=partial(on_loop, self._on_change),
            on_forgotten=partial(on_loop, self._on_forgotten),
        )

    @property
    def loaded(self) -> bool:
        """True once the table had all devices."""
        return self._feed.loaded

    async def up_to_date(self) -> None:
        """Wait until the table has every change that was committed before the call. Raises `Unreachable`."""
        if not self.loaded:
            raise Unreachable("the bridge is reading the registry of devices")
        ends = await on_thread("registry ends", partial(self._clients.stable_ends, self._partitions, READ_S))
        reached = self._loop.create_future()
        self._feed.when_read(ends, partial(call_soon, self._loop, _set, reached))
        try:
            async with asyncio.timeout(READ_S):
                await reached
        except TimeoutError:
            raise Unreachable(f"the registry of devices is not up to date: {self._feed.behind}") from None

    def start(self) -> None:
        """Begin to read the registry."""
        self._feed.start()

    def stop(self) -> None:
        """Stop reading it."""
        self._feed.stop()

    def join(self, limit_s: float) -> None:
        """Wait until the reading has ended, at most `limit_s` seconds."""
        self._feed.join(limit_s)

    def refusal(self, record: CommandRecord) -> Outcome | None:
        """Return the outcome for a new command that its device does not take, or `None`."""
        if not self.loaded:
            return RELEASED
        device = self.table.get(record.device)
        return None if device is None else refusal_of(device, self._types(), record.name, record.content_type, record.data)

    def change(self, edit: DeviceEdit, settle: Callable[[Outcome], None]) -> None:
        """Change a device. `settle` is called once, on the loop. Raises `Poison` if the change is not readable.

        The outcome is accepted after the commit; rejected; released or modified, to be sent again.
        """
        check_edit(edit)
        if edit.action == WANT and (refusal := self._want_refusal(edit)) is not None:
            settle(refusal)
            return
        shard = self._shards.ready(self._shards.number_of(edit.device))
        if shard is None:
            settle(RELEASED)
        else:
            shard.submit(DeviceChange(edit, partial(call_soon, self._loop, settle)))

    def _want_refusal(self, edit: DeviceEdit) -> Outcome | None:
        if not self.loaded:
            return RELEASED
        device, body = self.table.get(edit.device), read_want(edit.body)
        if device is None:
            return None
        return refusal_of(device, self._types(), body.command, "application/json", msgspec.json.encode(body.desired))

    def _on_change(self, device: str) -> None:
        for each in self.on_change:
            each(device)

    def _on_forgotten(self, device: DeviceEntry) -> None:
        names = {*device.gateways, *(name for name, _ in (*device.outcomes, *device.reports, *device.abouts))}
        for gateway in sorted(names):
            if (shard := self._shards.ready(self._shards.number_of(gateway or device.name))) is not None:
                shard.submit(DeviceRemoval(device.name, gateway))


def _set(reached: "asyncio.Future[None]") -> None:
    if not reached.done():
        reached.set_result(None)


class DeviceHandler(LinkHandler):
    """Serves the links that send to `device/`. A change goes to the bridge that owns the device's shard."""

    def __init__(self, devices: Devices, keys: DeviceKeyring, policy: Policy, shards: ShardTable, forwarder: Forwarder) -> None:
        self._devices = devices
        self._keys = keys
        self._policy = policy
        self._shards = shards
        self._forwarder = forwarder

    def attach(self, peer: Peer, link: Link, address: Address) -> None:
        """See `LinkHandler`."""
        peer.accept_link(link, address, CREDIT)

    def received(self, peer: Peer, delivery: Delivery, message: Message, address: Address) -> None:
        """See `LinkHandler`."""
        assert isinstance(address, DeviceAddress)
        device = device_of(message, address)
        change = self._change_of(peer, message, device)
        peer.check_quota()
        peer.count(commands=1, size_bytes=len(message.body))
        peer.queue(delivery, message)
        settle, number = partial(peer.settle_command, delivery), self._shards.number_of(device)
        if number in self._shards.owned or peer.forwarded:
            change(settle)
        else:
            to = str(DeviceAddress(address.tenant, device))
            self._forwarder.send(peer, msgspec.structs.replace(message, to=to), number, settle)

    def _change_of(self, peer: Peer, message: Message, device: str) -> Callable[[Callable[[Outcome], None]], None]:
        """Return the change that a message asks for, if the peer may make it. Raises `Poison`."""
        who, action = str(peer.principal)[:MAX_WHO], message.subject or ""
        if action in KEY_ACTIONS:
            if not self._policy.may_change_keys(peer.principal, device):
                raise Poison("not-authorised", f"{peer.principal} may not change the keys of device {device}")
            keys = KeyEdit(device, action, who, message.body)
            return lambda settle: self._keys.change(keys, settle)
        request = ""
        if message.message_id is not None:
            request = request_of(reply_owner(peer.principal), pack_id(message.message_id))
        edit = DeviceEdit(device, action, who, message.body, request, _if_version(message))
        require_may_edit(self._policy, peer.principal, edit)
        return lambda settle: self._devices.change(edit, settle)


def _if_version(message: Message) -> int | None:
    version = message.properties.get(IF_VERSION)
    if version is not None and (not isinstance(version, int) or isinstance(version, bool) or version < 0):
        raise Poison("malformed", f"property {IF_VERSION} must be the version of a desired state, 0 if there must be none")
    return version


def require_may_edit(policy: Policy, principal: Principal, edit: DeviceEdit) -> None:
    """Raise `Poison('not-authorised')` if a principal may not make a change. `want` needs the right to send its command."""
    command = read_want(edit.body).command if edit.action == WANT else ""
    if not policy.may(principal, Action.SEND, DeviceAddress(principal.tenant, edit.device), command):
        raise Poison("not-authorised", f"{principal} may not {shown(edit.action)} device {edit.device}")
