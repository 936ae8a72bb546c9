"""Sends desired states as commands, each version once. All methods run on the loop.

Two shards take part, perhaps at two bridges, and talk through the registry's records:

| step | shard | record |
|---|---|---|
| 1 | the device's | `desired`: the version to send, the command's id, and the gateway, committed before anything is sent |
| 2 | the gateway's | the command under that id, durable; after its end `outcome`, and `reported` |
| 3 | the device's | the next version, or the same again if it expired: then the device never saw it |

Each step may be repeated by any owner of the shard after a crash, because the id makes a copy of the command known. While a
newer version waits, the command of the older one is cancelled, as far as its gateway has not begun with it.
"""

import asyncio
import base64
import logging
from collections.abc import Callable
from functools import partial

import msgspec

from fogline.amqp.outcome import RESOURCE_LIMIT, DeliveryState, Outcome
from fogline.commands.command import CommandState, Deadline, digest
from fogline.message import pack_id
from fogline.process.log_throttle import LogThrottle
from fogline.process.loop_calls import call_soon
from fogline_cloud.bridge.commands.cancels import Cancels
from fogline_cloud.bridge.commands.command_table import CommandTable
from fogline_cloud.bridge.commands.devices import Devices
from fogline_cloud.bridge.commands.operators import OperatorHandler
from fogline_cloud.bridge.group.shard_table import ShardTable
from fogline_cloud.commands.command_id import CommandIds
from fogline_cloud.commands.record import CommandRecord, command_of
from fogline_cloud.devices.desired import DesiredOutcome, DesiredRecord, ReportedState, read_reported
from fogline_cloud.devices.device_table import DeviceEntry
from fogline_cloud.shard.work.device_changes import DesiredDispatch, DesiredOutcomeChange

EVERY_S = 0.2
MOST = 500
"""Devices to look at, each time."""
REPLY_ID = "desired"

_log = logging.getLogger("fogline.devices")
_log.addFilter(LogThrottle())


class DesiredStates:
    """The desired states that are not settled yet. `ttl_ms`: the longest time to live of a command.

    `gateway_of` returns the gateway that reaches a device.
    """

    def __init__(
        self,
        devices: Devices,
        shards: ShardTable,
        table: CommandTable,
        operators: OperatorHandler,
        *,
        ids: CommandIds,
        tenant: str,
        ttl_ms: int,
        gateway_of: Callable[[str], str | None],
    ) -> None:
        self._devices = devices
        self._shards = shards
        self._table = table
        self._operators = operators
        self._cancels: Cancels = operators.cancels
        self._ids = ids
        self._tenant = tenant
        self._ttl_ms = ttl_ms
        self._gateway_of = gateway_of
        self._loop = asyncio.get_running_loop()
        self._pending: dict[str, None] = {}
        self._writing: set[str] = set()
        self._ended: dict[
            str, tuple[str, CommandState]
        ] = {}  # written, and not read yet: writing it twice would undo a newer report
        self._loaded = False
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin."""
        self._tick()

    def stop(self) -> None:
        """Stop."""
        if self._timer is not None:
            self._timer.cancel()

    def changed(self, device: str) -> None:
        """Look at a device whose records have changed."""
        if self._loaded:
            self._look(device)

    def _tick(self) -> None:
        if self._devices.loaded and not self._loaded:
            self._loaded = True
            self._pending |= {each.name: None for each in self._devices.table if each.desired is not None}
        for device in list(self._pending)[:MOST]:
            try:
                self._look(device)
            except Exception:  # noqa: BLE001 - one device must not stop the desired states of all others
                _log.exception("the desired state of device %s is left as it is until it changes", device)
        self._timer = self._loop.call_later(EVERY_S, self._tick)

    def _look(self, device: str) -> None:
        self._pending.pop(device, None)
        entry = self._devices.table.get(device)
        if entry is not None and entry.desired is not None and self._advance(entry, entry.desired):
            self._pending[device] = None  # behind the others

    def _advance(self, entry: DeviceEntry, desired: DesiredRecord) -> bool:
        """Take the next step of a device, if it is this bridge's. Return False if nothing is left to do."""
        if entry.name in self._writing:
            return True
        left = self._follow(entry, desired) if desired.sent_id else False
        return self._dispatch(entry, desired) or left

    # --- in the device's shard

    def _dispatch(self, entry: DeviceEntry, desired: DesiredRecord) -> bool:
        outcome = entry.outcome
        if desired.sent_id and outcome is None:
            return True
        is_sent = desired.sent_version == desired.version
        if is_sent and (outcome is None or outcome.state is not CommandState.EXPIRED):
            return False
        shard, gateway = self._shards.ready(self._shards.number_of(entry.name)), self._gateway(entry)
        if shard is not None and gateway is not None:
            attempt = desired.attempt + 1 if is_sent else 1
            text = f"{desired.version}/{desired.changed_ms}/{attempt}"
            command_id = self._ids.of_message(self._tenant, "", f"{REPLY_ID}/{entry.name}", text)
            self._writing.add(entry.name)
            written = partial(call_soon, self._loop, self._on_written, entry.name)
            shard.submit(DesiredDispatch(entry.name, desired, gateway, command_id, written))
        return True

    def _gateway(self, entry: DeviceEntry) -> str | None:
        """Return the gateway that reaches a device: by its route, or if another bridge has it, by its newest sighting."""
        route, seen = self._gateway_of(entry.name), next((each for each in entry.gateways if each), None)
        if seen is not None and self._shards.number_of(seen) not in self._shards.owned:
            return seen
        return route or seen

    # --- in the gateway's shard

    def _follow(self, entry: DeviceEntry, desired: DesiredRecord) -> bool:
        """Send the command, or take its end. Return False if its end is in the registry of devices."""
        if self._shards.ready(self._shards.number_of(desired.sent_gateway)) is None:
            return entry.outcome is None
        record, outcome = self._table.registry.get(desired.sent_id), entry.outcome
        if outcome is not None and self._ended.get(entry.name) == (desired.sent_id, outcome.state):
            del self._ended[entry.name]
        if record is None and outcome is None:
            if desired.sent_version == desired.version:
                self._send(entry.name, desired)
            else:
                why = f"replaced by {_version(desired)}"
                self._write_outcome(entry.name, desired, CommandState.CANCELLED, why, never_sent=True)
        elif record is not None and record.state.terminal:
            if outcome is None or outcome.state is not record.state:
                self._write_end(entry.name, desired, record)
            elif record.owes_reply:
                self._table.acknowledge(record)
            return not record.final or outcome is None
        elif record is not None and desired.version > desired.sent_version:
            self._cancels.supersede(record, _version(desired), desired.changed_by)
        return outcome is None

    def _send(self, device: str, desired: DesiredRecord) -> None:
        now_ms = self._table.now_ms()
        record = command_for(desired, device, self._tenant, now_ms, now_ms + self._ttl_ms)
        self._writing.add(device)
        self._operators.submit_through(desired.sent_gateway, record, partial(self._on_settled, device, desired))

    def _on_settled(self, device: str, desired: DesiredRecord, outcome: Outcome) -> None:
        self._writing.discard(device)
        self._pending[device] = None
        if outcome.state is DeliveryState.REJECTED and outcome.condition != RESOURCE_LIMIT:
            self._write_outcome(device, desired, CommandState.REJECTED, outcome.description, never_sent=True)

    def _write_end(self, device: str, desired: DesiredRecord, record: CommandRecord) -> None:
        reported = None
        if record.state is CommandState.SUCCEEDED:
            answer = read_reported(record.reply_body)
            state = answer if answer is not None else desired.desired if desired.version == desired.sent_version else None
            reported = ReportedState(reported=state, changed_ms=record.changed_ms) if state is not None else None
        self._write_outcome(device, desired, record.state, record.why, status=record.status or 0, reported=reported)

    def _write_outcome(
        self,
        device: str,
        desired: DesiredRecord,
        state: CommandState,
        why: str,
        *,
        status: int = 0,
        reported: ReportedState | None = None,
        never_sent: bool = False,
    ) -> None:
        shard = self._shards.ready(self._shards.number_of(desired.sent_gateway))
        if shard is None or self._ended.get(device) == (desired.sent_id, state):
            return
        outcome = DesiredOutcome(
            command=desired.sent_id,
            version=desired.sent_version,
            state=state,
            status=status,
            changed_ms=self._table.now_ms(),
            why=why[:1024],
        )
        self._writing.add(device)
        shard.submit(
            DesiredOutcomeChange(
                device,
                desired.sent_gateway,
                outcome,
                reported,
                partial(call_soon, self._loop, self._on_written, device, (desired.sent_id, state)),
                partial(call_soon, self._loop, self._on_written, device),
                never_sent=never_sent,
            )
        )

    def _on_written(self, device: str, end: tuple[str, CommandState] | None = None) -> None:
        if end is not None:
            self._ended[device] = end
        self._writing.discard(device)
        self._pending[device] = None


def _version(desired: DesiredRecord) -> str:
    return f"version {desired.version} of the desired state"


def command_for(desired: DesiredRecord, device: str, tenant: str, now_ms: int, expires_ms: int) -> CommandRecord:
    """Return the command that carries a version of a desired state, without its gateway."""
    record = CommandRecord(
        id=desired.sent_id,
        tenant=tenant,
        gateway="",
        device=device,
        name=desired.command,
        state=CommandState.ACCEPTED,
        operator=desired.changed_by,
        accepted_ms=now_ms,
        expires_ms=expires_ms,
        changed_ms=now_ms,
        digest="",
        correlation=pack_id(desired.sent_id),
        reply_to=REPLY_ID,
        reply_owner="fogline/desired",
        content_type="application/json",
        data_base64=base64.b64encode(msgspec.json.encode(desired.desired)).decode(),
        durable=True,
    )
    return msgspec.structs.replace(record, digest=digest(command_of(record, Deadline("", 0))).hex())
