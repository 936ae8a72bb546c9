"""The state of a bridge with many gateways and devices, from made-up records in the real structures. Prints its memory.

python tests/bench/scale_load.py GATEWAYS DEVICES
"""

import asyncio
import base64
import gc
import json
import os
import sys
import time

import msgspec

from fogline.address import shard_of
from fogline.commands.command import CommandState, Deadline, digest
from fogline.commands.signature import Signer
from fogline.message import pack_id
from fogline_cloud.bridge.commands.command_sender import CommandSender
from fogline_cloud.bridge.commands.command_table import CommandTable
from fogline_cloud.bridge.gateways.connected_gateways import ConnectedGateways
from fogline_cloud.bridge.group.shard_table import ShardTable
from fogline_cloud.commands.command_life import CommandLife
from fogline_cloud.commands.record import CommandRecord, command_of, decode_record, encode
from fogline_cloud.commands.registry import Registry
from fogline_cloud.commands.routes import Routes
from fogline_cloud.devices.device_table import DeviceTable
from fogline_cloud.devices.own_devices import OwnDevices
from fogline_cloud.devices.record import (
    DeviceRecord,
    DeviceSighting,
    device_key,
    encode_device,
    encode_sighting,
    read_key,
    seen_key,
)
from fogline_cloud.shard.admission import Admission, StreamState
from fogline_lab.memory import resident_bytes

SHARDS = 8
LANES = ("alarm", "telemetry", "reply")
NOW_MS = 1_790_000_000_000
MB = 1e6


async def main(gateways: int, devices: int) -> None:
    """Fill the structures one after the other, and print what each adds."""
    names = [(f"sensor-{number:06}-kitchen", f"gateway-{number % gateways:05}") for number in range(devices)]
    kept: list[object] = []
    gc.collect()
    begin = resident_bytes(os.getpid())
    figures = {}
    for name, fill in (("streams", streams), ("routes", routes), ("registry", registry), ("commands", commands)):
        before, began = resident_bytes(os.getpid()), time.monotonic()
        kept.append(fill(names))
        gc.collect()
        figures[name] = (resident_bytes(os.getpid()) - before) / MB
        figures[f"{name}_s"] = time.monotonic() - began
    figures["all"] = (resident_bytes(os.getpid()) - begin) / MB
    figures["process"] = resident_bytes(os.getpid()) / MB
    print(json.dumps(figures), flush=True)
    table = kept[-1]
    assert isinstance(table, tuple)
    table[0].close()


def streams(names: list[tuple[str, str]]) -> object:
    """A stream on each of three lanes of each gateway."""
    shards: list[dict[tuple[str, str], StreamState]] = [{} for _ in range(SHARDS)]
    for number, gateway in enumerate(sorted({gateway for _, gateway in names})):
        for lane, text in enumerate(LANES):
            stream = f"{number * len(LANES) + lane:016x}"
            state = {"gateway": gateway, "stream": stream, "lane": text, "hwm": 100_000 + number, "landed": 100_000 + number}
            body = msgspec.json.encode({**state, "chain": f"{number:032x}"})
            shards[shard_of(gateway, SHARDS)][gateway, stream] = msgspec.json.decode(body, type=StreamState)
    return [Admission(known) for known in shards]


def routes(names: list[tuple[str, str]]) -> object:
    """A route to each device."""
    made = Routes()
    for device, gateway in names:
        made.recall(device, gateway, NOW_MS)
    return made


def registry(names: list[tuple[str, str]]) -> object:
    """A record and a sighting of each device, in the table and in the device's shard."""
    table, shards = DeviceTable(), [OwnDevices() for _ in range(SHARDS)]
    for number, (device, gateway) in enumerate(names):
        tags = {"site": f"site-{number % 500}", "floor": str(number % 7), "owner": f"owner-{number % 900}"}
        record = DeviceRecord(version=3, changed_ms=NOW_MS + number, changed_by="client t/alice", type="sensor", tags=tags)
        key, body = device_key(device).encode(), encode_device(record)
        table.apply(key, body)
        shards[shard_of(device, SHARDS)].apply(read_key(key), body)
        sighting = DeviceSighting(seen_ms=NOW_MS + number, firmware=f"2.{number % 9}")
        table.apply(seen_key(device, gateway).encode(), encode_sighting(sighting))
    for each in shards:
        each.share(table)
    return table, shards


def commands(names: list[tuple[str, str]]) -> object:
    """An open command for each device, in the table of the loop and in its shard."""
    table = CommandTable(ShardTable(SHARDS), CommandSender(ConnectedGateways(), Signer()), 10.0, lambda: NOW_MS)
    shards = [Registry() for _ in range(SHARDS)]
    data = base64.b64encode(b'{"on": true, "level": 50}').decode()
    for number, (device, gateway) in enumerate(names):
        record = decode_record(encode(open_command(f"{number:032x}", device, gateway, data)))
        shards[shard_of(gateway, SHARDS)].put(record)
        table.on(record, CommandLife.learned, record)
    assert len(table.open) == len(names)
    return table, shards


def open_command(command_id: str, device: str, gateway: str, data: str) -> CommandRecord:
    """Return a durable command that its gateway has."""
    record = CommandRecord(
        id=command_id,
        tenant="t",
        gateway=gateway,
        device=device,
        name="switch",
        state=CommandState.DISPATCHED,
        operator="client t/alice (certificate)",
        accepted_ms=NOW_MS,
        expires_ms=NOW_MS + 3_600_000,
        changed_ms=NOW_MS,
        digest="",
        correlation=pack_id(command_id),
        reply_to="operator-1",
        reply_owner="alice",
        content_type="application/json",
        data_base64=data,
        durable=True,
        deadline_boot="5f3a0c1e-0000-4000-8000-000000000001",
        deadline_ms=123_456_789,
    )
    return msgspec.structs.replace(record, digest=digest(command_of(record, Deadline("", 0))).hex())


if __name__ == "__main__":
    asyncio.run(main(*map(int, sys.argv[1:3])))
