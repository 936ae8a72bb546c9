"""The keys of devices at one bridge: changes by operators, in the device's shard, and lists. All methods run on the loop."""

import asyncio
import heapq
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from fogline.amqp.outcome import NOT_ALLOWED, RELEASED, RESOURCE_LIMIT, Outcome, rejected
from fogline.commands.signature import Signer
from fogline.errors import Poison, Unreachable
from fogline.process.kernel_clock import wall_clock_ms
from fogline.process.loop_calls import call_soon, on_thread
from fogline.process.monitoring.metrics import Sample
from fogline_cloud.bridge.credentials.credential_distribution import CredentialDistribution, MaySpeakFor
from fogline_cloud.bridge.credentials.credential_feed import CredentialFeed
from fogline_cloud.bridge.group.shard_table import ShardTable
from fogline_cloud.credentials.credential_record import key_facts
from fogline_cloud.credentials.credential_table import MAX_DEVICES, CredentialTable
from fogline_cloud.credentials.key_edits import KeyEdit, check_key_edit
from fogline_cloud.credentials.vault import Vault, read_vault
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.settings import CloudSettings
from fogline_cloud.shard.work.key_changes import KeyChange

READ_S = 10.0
"""Time in which the table gets what Kafka has."""


class DeviceKeyring:
    """The keys of one bridge. Raises `Misconfigured` if the file of `devices.credentials_key` is wrong.

    `distribution` brings them to the gateways that `may_speak_for` a device, signed by `signer`.
    """

    def __init__(
        self,
        clients: KafkaClients,
        settings: CloudSettings,
        shards: ShardTable,
        may_speak_for: MaySpeakFor,
        signer: Signer,
    ) -> None:
        self.vault = _vault(settings)
        self.table = CredentialTable(self.vault)
        self.distribution = CredentialDistribution(self.table, may_speak_for, signer)
        self._clients, self._shards = clients, shards
        self._loop = asyncio.get_running_loop()
        self._partitions = [(topics.credentials(settings.tenant), shard) for shard in range(settings.shards)]
        on_loop = partial(call_soon, self._loop)
        self._feed = CredentialFeed(
            clients,
            settings.tenant,
            settings.shards,
            self.table,
            on_change=partial(on_loop, self.distribution.changed),
            on_loaded=partial(on_loop, self.distribution.loaded),
        )

    @property
    def loaded(self) -> bool:
        """True once the table had the keys of all devices."""
        return self._feed.loaded

    def start(self) -> None:
        """Begin to read the keys."""
        self._feed.start()

    async def close(self, limit_s: float) -> None:
        """Stop sending and reading, and wait until the reading has ended, at most `limit_s` seconds."""
        self._feed.stop()
        await self.distribution.close()
        await asyncio.to_thread(self._feed.join, limit_s)

    def change(self, edit: KeyEdit, settle: Callable[[Outcome], None]) -> None:
        """Change the keys of a device. `settle` is called once, on the loop. Raises `Poison` if the change is not readable.

        The outcome is accepted after the commit; rejected; released or modified, to be sent again.
        """
        check_key_edit(edit)
        if self.vault is None:
            why = "this bridge keeps no keys of devices: set devices.credentials_key (fogline device credentials key makes one)"
            settle(rejected(NOT_ALLOWED, why))
        elif not self.loaded or (shard := self._shards.ready(self._shards.number_of(edit.device))) is None:
            settle(RELEASED)
        elif len(self.table) >= MAX_DEVICES and edit.device not in self.table:
            settle(rejected(RESOURCE_LIMIT, f"{MAX_DEVICES} devices have keys already"))
        else:
            shard.submit(KeyChange(edit, self.vault, partial(call_soon, self._loop, settle)))

    def read(self) -> Iterator[Sample]:
        """Yield the present samples."""
        yield Sample("fogline_bridge_keyed_devices", len(self.table))
        yield Sample("fogline_bridge_gateways_behind", self.distribution.behind)

    async def up_to_date(self) -> None:
        """Wait until the table has every change that was committed before the call. Raises `Unreachable`."""
        if not self.loaded:
            raise Unreachable("the bridge is reading the keys of devices")
        ends = await on_thread("ends of keys", partial(self._clients.stable_ends, self._partitions, READ_S))
        reached = asyncio.Event()
        self._feed.when_read(ends, partial(call_soon, self._loop, reached.set))
        try:
            async with asyncio.timeout(READ_S):
                await reached.wait()
        except TimeoutError:
            raise Unreachable(f"the keys of devices are not up to date: {self._feed.behind}") from None

    def facts(self, may_read: Callable[[str], bool], device: str, limit: int) -> tuple[Iterator[dict[str, Any]], int]:
        """Return what people may see of the keys, by device or of one, and the number of devices beyond `limit`."""
        names = [each for each in self.table.names if device in ("", each) and may_read(each)]
        return self._facts(heapq.nsmallest(limit, names)), max(0, len(names) - limit)

    def _facts(self, names: list[str]) -> Iterator[dict[str, Any]]:
        now_ms = wall_clock_ms()
        for each in names:
            try:
                record = self.table.record(each)
            except Poison as error:
                yield {"device": each, "problem": str(error), "keys": []}
                continue
            if record is not None:
                yield key_facts(each, record, now_ms)


def _vault(settings: CloudSettings) -> Vault | None:
    path = settings.devices.credentials_key
    return read_vault(settings.tenant, path) if path is not None else None
