"""The Bluetooth devices of the demo: who hears them, what they say, and how their counter is read back out of it. Pure.

An advertiser counts what it says: (device, n) is found again in the raw record in Kafka and in the table `readings`.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from fogline.advertisement import decode
from fogline.errors import Poison
from fogline_edge.profiles.ble import full_uuid

MAX_N = 16_000
"""An advertiser counts so far, and stays there: as a temperature in hundredths its counter has to fit into both formats."""
METRIC = "temperature"
"""The metric of `readings` that holds `n`, as hundredths of a degree."""
MOVE, TURN = "move", "turn"
"""The commands of a valve: one is answered by a notification, the other by the response to the write."""
VALVE_PROFILE = f"""\
name = "valve"
channel = "valve"

[[recognise]]
services = ["181a"]

[[notify]]
characteristic = "2a6e"

[[commands]]
name = "{MOVE}"
characteristic = "6e400002-0000-4000-8000-00805f9b0001"
answer = "notify"
answer_characteristic = "6e400003-0000-4000-8000-00805f9b0001"
timeout_s = 5

[[commands]]
name = "{TURN}"
characteristic = "6e400002-0000-4000-8000-00805f9b0001"
"""
"""Of the peripherals of `fogline.testing.ble.air`, which cannot be imported where bumble is not."""
_SERVICE_DATA, _MANUFACTURER = 0x16, 0xFF
_BTHOME, _RUUVI = 0xFCD2, 0x0499
_RUUVI_SEQUENCE = slice(16, 18)


class Sort(StrEnum):
    """What sort of device."""

    BTHOME = "bthome"
    """Broadcasts BTHome v2; its packet id has 8 bits."""
    RUUVI = "ruuvi"
    """Broadcasts Ruuvi's format 5; its sequence has 16 bits."""
    VALVE = "valve"
    """Is connected to, notifies a temperature, and takes commands."""


@dataclass(frozen=True, slots=True)
class BleDevice:
    """One device. `heard_by`: indexes of the gateways that it reaches."""

    name: str
    sort: Sort
    address: str
    heard_by: tuple[int, ...]

    @property
    def advertises(self) -> bool:
        """Whether it only talks."""
        return self.sort is not Sort.VALVE


def crowd(gateways: int, valves: int = 1) -> list[BleDevice]:
    """An advertiser of each sort that all gateways hear, one of each for each gateway alone, and `valves` for each."""
    everybody = tuple(range(gateways))
    alone = [(each,) for each in everybody]
    wanted = [(sort, heard_by) for heard_by in (everybody, *alone) for sort in (Sort.BTHOME, Sort.RUUVI)]
    wanted += [(Sort.VALVE, heard_by) for _ in range(valves) for heard_by in alone]
    return [
        BleDevice(f"{sort}-{n:02}", sort, f"C0:00:00:00:00:{n:02X}", heard_by) for n, (sort, heard_by) in enumerate(wanted, 1)
    ]


def advertised(device: BleDevice, n: int) -> tuple[int, bytes]:
    """The `n`-th thing that an advertiser says: AD type and data (BTHome: bthome.io/format; Ruuvi: data format 5)."""
    if device.sort is Sort.BTHOME:
        return _SERVICE_DATA, struct.pack("<HBBBBh", _BTHOME, 0x40, 0, n % 256, 2, n)
    address = bytes.fromhex(device.address.replace(":", ""))
    measured = struct.pack(">BhHHhhhHBH", 5, 2 * n, 20_000, 50_000, 0, 0, 1000, 0xAC36, 0, n)
    return _MANUFACTURER, struct.pack("<H", _RUUVI) + measured + address


def advertised_n(body: bytes) -> int | None:
    """`n` of the body of an advertisement's event; `None` if nobody of ours said that."""
    try:
        said = decode(body)
    except Poison:
        return None
    bthome = said.service_data.get(full_uuid(f"{_BTHOME:04x}"), b"")
    if len(bthome) == 6:
        return int.from_bytes(bthome[-2:], "little")
    ruuvi = said.manufacturer.get(_RUUVI, b"")
    return int.from_bytes(ruuvi[_RUUVI_SEQUENCE], "big") if len(ruuvi) == 24 else None


def read_n(value: float) -> int:
    """`n` of a reading."""
    return round(value * 100)


def settings(devices: Sequence[BleDevice], gateway: int, longest_retry_s: float) -> str:
    """Of a gateway, `[ble]`: the devices that it can hear."""
    text = f"""
[ble]
longest_retry_s = {longest_retry_s}
connect_timeout_s = 10.0
pause_scanning = false  # a simulated radio connects and scans at once; the budget of pauses would slow many reconnects down
"""
    profiles = {Sort.BTHOME: "bthome", Sort.RUUVI: "ruuvitag", Sort.VALVE: "valve.toml"}
    for each in devices:
        if gateway in each.heard_by:
            text += f"""
[[ble.devices]]
device = "{each.name}"
address = "{each.address}"
profile = "{profiles[each.sort]}"
"""
    return text


def order_body(command: str, name: str) -> bytes:
    """What is written to a valve for the order `name`."""
    return f"ack:{name}".encode() if command == MOVE else name.encode()


def order_name(written: bytes) -> str:
    """The order that this was written for."""
    return written.decode("ascii", "replace").removeprefix("ack:")
