"""The bridge: listener, ownership and shards put together."""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable
from pathlib import Path

from fogline.census import answer_sigusr1
from fogline.errors import Misconfigured
from fogline.principal import Policy
from fogline.settings import require_loopback, split_endpoint
from fogline.signature import Signer, read_signer
from fogline_cloud.bridge.command_key import command_key
from fogline_cloud.bridge.gateways import GatewayDesk
from fogline_cloud.bridge.listener import Listener
from fogline_cloud.bridge.owners import Owners, client_id
from fogline_cloud.bridge.ownership import Ownership, group_of
from fogline_cloud.bridge.reports import ReportDesk
from fogline_cloud.bridge.shard import Shard
from fogline_cloud.bridge.transaction import TransactionLog
from fogline_cloud.commands.command_id import CommandIds
from fogline_cloud.commands.desk import CommandDesk
from fogline_cloud.commands.dispatch import Dispatcher
from fogline_cloud.commands.routes import Routes
from fogline_cloud.kafka import KafkaClients
from fogline_cloud.provision import check_topics
from fogline_cloud.settings import CommandSettings, Settings

STOP_S = 5.0
"""How long the shards' threads are waited for at the end: one that waits for Kafka ends with the process, whatever it does."""

_log = logging.getLogger("fogline.bridge")


class Bridge:
    """One bridge process. `start`, then `close`; both on the loop."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._clients = KafkaClients(settings.kafka)
        self._loop = asyncio.get_running_loop()
        self._shards: dict[int, Shard] = {}
        self._closing = False
        gateways = settings.bridge.gateways
        self._policy = Policy(settings.tenant, settings.shards, frozenset(gateways) if gateways is not None else None)
        self._routes = Routes()
        self.gateways = GatewayDesk(self, settings.shards, settings.bridge.hellos_s)
        self._signer = _signer(settings.commands)
        self.dispatcher = Dispatcher(self, self.gateways, self._routes, settings.commands, self._signer)
        self._ids: CommandIds | None = None
        self.listener: Listener | None = None
        self._ownership: Ownership | None = None

    async def start(self) -> tuple[str, int]:
        """Check the topics, listen, join the group. Returns the address. Raises `Misconfigured`."""
        host, port = split_endpoint(self._settings.bridge.listen, "bridge.listen")
        require_loopback(host, "bridge.listen")
        problems = await asyncio.to_thread(check_topics, self._clients, self._settings)
        if problems:
            raise Misconfigured(problems[0])
        self._ids = CommandIds(await asyncio.to_thread(command_key, self._clients, self._settings.tenant, self._signer))
        commands = CommandDesk(self.dispatcher, self._settings.commands, self._ids)
        reports = ReportDesk(self, self._settings.shards)
        self.listener = Listener(self._settings.bridge, self._policy, self.gateways, reports, commands)
        bound = await self.listener.start(host, port)
        self._join("{}:{}".format(*bound))
        return bound

    def _join(self, bound: str) -> None:
        """Join the group of bridges, and learn from it who has what."""
        settings = self._settings
        own = client_id(settings.bridge.name, settings.bridge.advertised or bound)
        self.gateways.find_owner = Owners(self._clients, group_of(settings.tenant), own).find
        self._ownership = Ownership(
            self._clients,
            settings.tenant,
            settings.bridge.name,
            client_id=own,
            gained=self._on_gained,
            lost=self._on_lost,
        )
        self._ownership.start()

    async def close(self) -> None:
        """Stop serving, then leave the group. What is in open transactions is aborted and sent again."""
        if self.listener is not None:
            await self.listener.close()
        self.dispatcher.close()
        self._closing = True
        shards = self.shards  # leaving the group takes them away, but not their threads
        for shard in shards:
            shard.stop()
        if self._ownership is not None:
            await asyncio.to_thread(self._ownership.stop)
        deadline = self._loop.time() + STOP_S
        for shard in shards:
            await asyncio.to_thread(shard.join, max(0.0, deadline - self._loop.time()))

    def get(self, number: int) -> Shard | None:
        """A shard of this bridge."""
        return self._shards.get(number)

    @property
    def whole(self) -> bool:
        """Whether all shards of the tenant are this bridge's, and ready."""
        return len(self._shards) == self._settings.shards and all(shard.ready for shard in self._shards.values())

    @property
    def shards(self) -> list[Shard]:
        """The shards of this bridge, ready or not."""
        return [self._shards[number] for number in sorted(self._shards)]

    # --- called by the group's thread

    def _on_gained(self, number: int) -> None:
        self._loop.call_soon_threadsafe(self._gain, number)

    def _on_lost(self, number: int) -> None:
        self._loop.call_soon_threadsafe(self._lose, number)

    def _gain(self, number: int) -> None:
        self._lose(number)
        if self._closing or self._ids is None:
            return

        def make_log() -> TransactionLog:
            return TransactionLog(self._clients, self._settings.tenant, number)

        def changed(shard: Shard) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._on_changed, shard)

        shard = self._shards[number] = Shard(
            number,
            make_log,
            self._settings.bridge,
            changed,
            routes=self._routes,
            tell=self.dispatcher.tell,
            issued=self._ids.issued,
        )
        shard.start()

    def _lose(self, number: int) -> None:
        if (shard := self._shards.pop(number, None)) is not None:
            shard.stop()
            self.gateways.dismiss(number, f"shard {number} moved to another bridge")

    def _on_changed(self, shard: Shard) -> None:
        if not shard.ready and self._shards.get(shard.number) is shard:
            self.gateways.dismiss(shard.number, f"shard {shard.number}: {shard.why_not}")


def _signer(settings: CommandSettings) -> Signer:
    if settings.signing_key is None:
        return Signer()
    where = f"commands.signing_key = {settings.signing_key!r}"
    try:
        text = Path(settings.signing_key).read_text("ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise Misconfigured(f"{where}: the key cannot be read: {error}; make one with: fogline command key") from None
    return read_signer(settings.key_id, text, where)


async def run_bridge(settings: Settings, on_ready: Callable[[str, int], None]) -> None:
    """Serve until SIGINT or SIGTERM. `on_ready` gets the address."""
    bridge = Bridge(settings)
    stop = asyncio.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(each, stop.set)
    answer_sigusr1()
    host, port = await bridge.start()
    on_ready(host, port)
    try:
        await stop.wait()
        _log.info("stopping")
    finally:
        await bridge.close()
