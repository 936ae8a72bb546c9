"""Serves the links on which clients receive devices and commands: `device/` and `command/` (`fogline_cloud.listing`).

Devices come from the table in memory, once it has every change that was committed before the question. Commands come from
Kafka, because a bridge knows those of its own shards only. One question for commands is read at a time.
"""

import asyncio
import heapq
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

import msgspec

from fogline.address import Address, CommandAddress, DeviceAddress
from fogline.amqp.events import Delivery, Link
from fogline.amqp.outcome import DETACH_FORCED, INTERNAL_ERROR, INVALID_FIELD, NOT_IMPLEMENTED, RESOURCE_LIMIT, Condition
from fogline.errors import Poison, Unreachable
from fogline.message import Message
from fogline.process.loop_calls import on_thread
from fogline_cloud.access.policy import Action, Policy
from fogline_cloud.bridge.commands.command_search import CommandSearch
from fogline_cloud.bridge.commands.devices import Devices
from fogline_cloud.bridge.commands.list_sender import IDLE_S, ListSender
from fogline_cloud.bridge.credentials.device_keys import DeviceKeyring
from fogline_cloud.bridge.peers.audit_trail import AuditTrail
from fogline_cloud.bridge.peers.peer import LinkHandler, Peer
from fogline_cloud.commands.newest_commands import ListedCommand
from fogline_cloud.devices.device_facts import all_facts_of
from fogline_cloud.devices.device_filter import read_filter
from fogline_cloud.devices.device_search import matching_names
from fogline_cloud.devices.device_table import DeviceEntry
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.listing import (
    COMPLETE,
    MORE,
    CommandQuery,
    DeviceQuery,
    ListQuery,
    properties_of,
    read_command_query,
    read_device_query,
)

MAX_LISTS = 8
"""Lists that are read or sent at a time."""
MAX_OF_ONE = 2
"""Those of one client."""
STOP_S = 5.0
_JSON = "application/json"
_CONDITIONS = {"quota": RESOURCE_LIMIT, "busy": RESOURCE_LIMIT, "filter": NOT_IMPLEMENTED}

_log = logging.getLogger("fogline.lists")


@dataclass(eq=False, slots=True)
class _List:
    """One question, until its answer is sent or nobody waits for it."""

    peer: Peer
    link: Link
    address: DeviceAddress | CommandAddress
    query: ListQuery
    sender: ListSender
    stopping: threading.Event = field(default_factory=threading.Event)
    reading: "asyncio.Task[None] | None" = None


class ListHandler(LinkHandler):
    """Serves the receiving links `device/` and `command/`. All methods run on the loop."""

    def __init__(self, clients: KafkaClients, devices: Devices, keys: DeviceKeyring, policy: Policy, audit: AuditTrail) -> None:
        self._clients = clients
        self._devices = devices
        self._keys = keys
        self._policy = policy
        self._audit = audit
        self._lists: dict[Link, _List] = {}
        self._turn = asyncio.Lock()  # of the questions for commands

    def attach(self, peer: Peer, link: Link, address: Address) -> None:
        """See `LinkHandler`."""
        assert isinstance(address, DeviceAddress | CommandAddress)
        try:
            query = _read_query(link, address)
            peer.check_quota()
            self._check_room(peer)
        except Poison as error:
            peer.links.discard(link)
            peer.connection.refuse_link(link, Condition(_CONDITIONS.get(error.reason, INVALID_FIELD), str(error)))
            return
        peer.count(commands=1)
        asked = ", ".join(f"{name} {value!a}" for name, value in properties_of(query).items())
        self._audit.note(peer.principal, "LIST READ", asked, name=str(address))
        sender = ListSender(peer, link, over=partial(self._forget, link), idle=partial(self._on_idle, link))
        found = self._lists[link] = _List(peer, link, address, query, sender)
        found.reading = asyncio.create_task(self._serve(found), name="list")

    def _check_room(self, peer: Peer) -> None:
        of_whom = Counter(str(each.peer.principal) for each in self._lists.values())
        if of_whom[str(peer.principal)] >= MAX_OF_ONE:
            raise Poison("busy", f"{peer.principal} reads {MAX_OF_ONE} lists at this bridge already")
        if len(self._lists) >= MAX_LISTS:
            raise Poison("busy", f"this bridge is busy with {MAX_LISTS} lists")

    async def _serve(self, each: _List) -> None:
        condition: Condition | None = None
        try:
            messages = await (self._devices_of(each) if isinstance(each.query, DeviceQuery) else self._commands_of(each))
        except Unreachable as error:
            condition = Condition(DETACH_FORCED, f"the list cannot be read at present: {error}")
        except Exception as error:  # noqa: BLE001 - one question must not end the connection with all the others
            _log.exception("a list of %s cannot be read", each.peer.principal)
            condition = Condition(INTERNAL_ERROR, f"the bridge failed at it ({type(error).__name__}); its log says why")
        each.reading = None
        if each.stopping.is_set():
            self._forget(each.link)
        elif condition is not None:
            self._end(each, condition)
        else:
            each.sender.begin(messages)

    async def _devices_of(self, each: _List) -> Iterator[Message]:
        assert isinstance(each.query, DeviceQuery)
        policy, principal, tenant = self._policy, each.peer.principal, each.address.tenant
        if each.query.keys:
            await self._keys.up_to_date()
            may_read = partial(policy.may_change_keys, principal)
            found, more = self._keys.facts(may_read, each.address.device, each.query.limit)
            return chain((_message(msgspec.json.encode(facts)) for facts in found), [_complete(more)])
        where = read_filter([each.query.where] if each.query.where else [])

        def may_read_device(name: str) -> bool:
            return policy.may(principal, Action.RECEIVE, DeviceAddress(tenant, name))

        def matches(device: DeviceEntry) -> bool:
            return where.matches(device) and may_read_device(device.name)

        await self._devices.up_to_date()
        if each.address.device:
            device = self._devices.table.get(each.address.device)
            names = [device.name] if device is not None and matches(device) else []
        else:
            names = await matching_names(self._devices.table, matches)
        return self._device_messages(names, each.query.limit, may_read_device)

    def _device_messages(self, names: list[str], limit: int, may_read_device: Callable[[str], bool]) -> Iterator[Message]:
        """Yield the devices, as they are when the client takes them, and the end. `names`: a heap."""
        more = max(0, len(names) - limit)
        while len(names) > more:
            device = self._devices.table.get(heapq.heappop(names))
            if device is not None and may_read_device(device.name):
                yield _message(msgspec.json.encode(all_facts_of(device)))
        yield _complete(more)

    async def _commands_of(self, each: _List) -> Iterator[Message]:
        assert isinstance(each.query, CommandQuery)
        assert isinstance(each.address, CommandAddress)
        search = CommandSearch(self._policy, each.peer.principal, each.address, each.query)
        async with self._turn:
            if each.stopping.is_set():
                return iter(())
            found = await on_thread("command search", partial(search.run, self._clients, each.stopping))
        commands, more = found.newest(each.query.limit)
        return _command_messages(search, commands, more)

    def _on_idle(self, link: Link) -> None:
        if (each := self._lists.get(link)) is not None:
            self._end(each, Condition(RESOURCE_LIMIT, f"nothing of this list was taken for {IDLE_S:.0f} s"))

    def _end(self, each: _List, condition: Condition) -> None:
        each.peer.links.discard(each.link)
        each.peer.connection.refuse_link(each.link, condition)
        self._forget(each.link)

    def _forget(self, link: Link) -> None:
        """Forget a list that is over. One that is being read counts until its thread has ended."""
        if (each := self._lists.get(link)) is not None:
            each.stopping.set()
            each.sender.stop()
            if each.reading is None:
                del self._lists[link]

    def received(self, peer: Peer, delivery: Delivery, message: Message, address: Address) -> None:
        """See `LinkHandler`. Nothing is received on these links."""

    def detached(self, link: Link | None) -> None:
        """See `LinkHandler`."""
        for each in list(self._lists):
            if each is link or each.closed:
                self._forget(each)

    async def close(self) -> None:
        """Stop all reading, after the connections have ended."""
        reading = [each.reading for each in self._lists.values() if each.reading is not None]
        for each in list(self._lists):
            self._forget(each)
        if reading:
            await asyncio.wait(reading, timeout=STOP_S)


def _read_query(link: Link, address: DeviceAddress | CommandAddress) -> ListQuery:
    if link.filters:
        raise Poison("filter", f"filter {min(link.filters)} is not supported here: use the properties of the link")
    if isinstance(address, CommandAddress):
        return read_command_query(link.properties)
    query = read_device_query(link.properties)
    read_filter([query.where] if query.where else [])
    return query


def _command_messages(search: CommandSearch, commands: Sequence[ListedCommand], more: int) -> Iterator[Message]:
    for each in commands:
        if search.may_read(each.device, each.name):
            yield _message(each.body)
    yield _complete(more)


def _message(body: bytes) -> Message:
    return Message(body=body, content_type=_JSON)


def _complete(more: int) -> Message:
    return Message(subject=COMPLETE, properties={MORE: more})
