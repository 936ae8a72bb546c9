"""Sends every connected gateway the keys of the devices that it may hear, and each change within a second.

A gateway may hear a device if it may speak for it (`access.toml`). One message is under way to a gateway at a time, so commands
do not wait behind keys. All methods run on the loop.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable

from fogline.amqp.outcome import FORCED, Condition, DeliveryState, Outcome
from fogline.commands.signature import Signer
from fogline.errors import NotSent, Poison, Unreachable
from fogline.gateway.credential_transfer import MAX_PART, CredentialSealer, CredentialUpdate
from fogline.gateway.device_credentials import DeviceCredentials
from fogline.gateway.message_signature import GatewayName
from fogline.process.cancellation import end_tasks
from fogline.process.log_throttle import LogThrottle
from fogline_cloud.bridge.peers.peer import GatewayPeer
from fogline_cloud.credentials.credential_table import CredentialTable

RETRY_S = 10.0
"""Pause before keys are sent again that a gateway could not write."""

_log = logging.getLogger("fogline.credentials")
_log.addFilter(LogThrottle())

MaySpeakFor = Callable[[str, str], bool]


class CredentialDistribution:
    """The way of the keys to all gateways of this bridge. `may_speak_for` takes a gateway and a device."""

    def __init__(self, table: CredentialTable, may_speak_for: MaySpeakFor, signer: Signer) -> None:
        self._table, self._may_speak_for, self._signer = table, may_speak_for, signer
        self._loaded = False
        self._couriers: dict[GatewayPeer, _Courier] = {}

    def welcomed(self, peer: GatewayPeer) -> None:
        """Begin to keep a gateway's keys up to date, if it takes any.

        Again for a peer with the same key: other messages to it were lost, and the numbers of these go on.
        """
        self.sweep()
        if not peer.credentials_key:
            return
        if (known := self._couriers.get(peer)) is not None:
            if known.key == peer.credentials_key:
                known.compare()
                return
            known.stop()
        name = GatewayName(peer.principal.tenant, peer.principal.name)
        try:
            sealer = CredentialSealer(name, peer.credentials_key, self._signer)
        except Poison as error:
            _log.warning("gateway %s gets no keys of devices: %s", name.gateway, error)
            return
        self._couriers[peer] = courier = _Courier(peer, sealer, self._table, self._may_speak_for)
        if self._loaded:
            courier.begin()

    @property
    def behind(self) -> int:
        """The number of gateways that do not have the newest keys yet."""
        return sum(each.behind for each in self._couriers.values() if not each.closed)

    def loaded(self) -> None:
        """Note that the table has the keys of all devices."""
        self._loaded = True
        for each in self._couriers.values():
            each.begin()

    def changed(self, device: str) -> None:
        """Send the new keys of a device to the gateways that may hear it."""
        for each in self._couriers.values():
            each.changed(device)

    def permissions_changed(self) -> None:
        """Compare the keys of all gateways again: they may hear other devices now."""
        for each in self._couriers.values():
            each.compare()

    def sweep(self) -> None:
        """Forget gateways whose connection has ended."""
        for peer in [peer for peer, each in self._couriers.items() if each.closed]:
            self._couriers.pop(peer).stop()

    async def close(self) -> None:
        """Stop."""
        tasks = [task for each in self._couriers.values() if (task := each.stop()) is not None]
        self._couriers.clear()
        if tasks:
            await end_tasks(*tasks)


class _Courier:
    """Carries keys to one gateway, on a task."""

    def __init__(self, peer: GatewayPeer, sealer: CredentialSealer, table: CredentialTable, may_speak_for: MaySpeakFor) -> None:
        self._peer, self._sealer, self._table = peer, sealer, table
        self.key = peer.credentials_key
        """That of the gateway's hello, for which the messages are sealed."""
        self._gateway = peer.principal.name
        self._may_speak_for = may_speak_for
        self._changed: dict[str, None] = {}
        self._wanted = 1  # comparisons of everything
        self._done = 0
        self._sending = False
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def closed(self) -> bool:
        """True if the gateway's connection has ended."""
        return self._peer.closed

    @property
    def behind(self) -> bool:
        """True if the gateway lacks something, or has not accepted it yet."""
        return self._done < self._wanted or bool(self._changed) or self._sending

    def begin(self) -> None:
        """Begin to send."""
        self._wake.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"keys for {self._gateway}")

    def changed(self, device: str) -> None:
        """Send a device's keys, or that it has none, if the gateway may hear it."""
        if self._may_hear(device):
            self._changed[device] = None
            self._wake.set()

    def compare(self) -> None:
        """Offer everything again."""
        self._wanted += 1
        self._wake.set()

    def stop(self) -> "asyncio.Task[None] | None":
        """Cancel the task, and return it."""
        if self._task is not None:
            self._task.cancel()
        return self._task

    def _may_hear(self, device: str) -> bool:
        return self._may_speak_for(self._gateway, device)

    async def _run(self) -> None:
        while not self._peer.closed:
            await self._wake.wait()
            self._wake.clear()
            try:
                if not await self._bring_up_to_date():
                    await asyncio.sleep(RETRY_S)
                    self._wake.set()
            except (Unreachable, NotSent) as error:
                if not self._peer.closed:  # behind a router: the gateway takes these messages in their order only
                    self._peer.connection.close(Condition(FORCED, f"keys of devices were lost: {error}"))
                return  # a new connection begins anew
            except Exception:  # noqa: BLE001 - otherwise the gateway would get no keys any more, without a word
                _log.exception("the keys of devices are not sent to gateway %s", self._gateway)
                await asyncio.sleep(RETRY_S)
                self.compare()

    async def _bring_up_to_date(self) -> bool:
        """Send what the gateway lacks. Return False if it has to be tried again."""
        while self._done < self._wanted:
            wanted = self._wanted
            self._changed.clear()
            if not await self._offer():
                return False
            self._done = wanted
        while self._changed:
            part = list(self._changed)[:MAX_PART]
            for each in part:
                del self._changed[each]
            found = [self._table.credentials(each) for each in part]
            gone = [each for each, keys in zip(part, found, strict=True) if keys is None]
            update = CredentialUpdate(devices=[each for each in found if each is not None], gone=gone)
            if not await self._is_accepted(update):
                self._wanted += 1
                return False
        return True

    async def _offer(self) -> bool:
        """Let the gateway compare what it has; send everything if that is something else. Return True if it has all then."""
        if self._table.problem:  # a set that is not whole would take keys away from devices
            _log.error("gateways get no keys of devices from this bridge: %s", self._table.problem)
            return False
        outcome = await self._send(CredentialUpdate(offer=self._table.digest(self._may_hear)))
        if outcome.state is DeliveryState.ACCEPTED:
            return True
        if outcome.state is not DeliveryState.RELEASED:
            return self._refused(outcome)
        names = [each for each in self._table.names if self._may_hear(each)]
        for part, more in _parts(names):
            credentials = await self._of(part)
            if not await self._is_accepted(CredentialUpdate(devices=credentials, whole=True, more=more)):
                return False
        return True

    async def _of(self, names: Iterable[str]) -> list[DeviceCredentials]:
        await asyncio.sleep(0)
        return [found for each in names if (found := self._table.credentials(each)) is not None]

    async def _is_accepted(self, update: CredentialUpdate) -> bool:
        outcome = await self._send(update)
        return outcome.state is DeliveryState.ACCEPTED or self._refused(outcome)

    def _refused(self, outcome: Outcome) -> bool:
        _log.warning("gateway %s does not take keys of devices: %s", self._gateway, outcome)
        return False

    async def _send(self, update: CredentialUpdate) -> Outcome:
        control = self._peer.control
        if control is None or self._peer.closed:
            raise Unreachable("the connection has ended")
        self._sending = True
        outcome = await control.send(self._sealer.seal(update))
        self._sending = False
        return outcome


def _parts(names: list[str]) -> Iterable[tuple[list[str], bool]]:
    """Yield the names in parts, each with whether another one follows; one part if there are none."""
    for at in range(0, max(1, len(names)), MAX_PART):
        yield names[at : at + MAX_PART], at + MAX_PART < len(names)
