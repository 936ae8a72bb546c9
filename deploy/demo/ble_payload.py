"""Simulated Bluetooth devices, their advertisements, and the decoding of an advertisement's counter. Pure.

An advertiser counts its values: (device, n) identifies a value in the raw record in Kafka and in the table `readings`.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from fogline.advertisement import decode
from fogline.errors import Poison
from fogline_edge.profiles.ble import full_uuid

MAX_N = 16_000
"""Highest counter of an advertiser: as a temperature in hundredths it must fit into both formats."""
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
"""Of the peripherals of `fogline_lab.ble.peripheral`, which cannot be imported where bumble is not."""
_SERVICE_DATA, _MANUFACTURER = 0x16, 0xFF
_BTHOME, _RUUVI = 0xFCD2, 0x0499
_RUUVI_SEQUENCE = slice(16, 18)


class Sort(StrEnum):
    """Kind of a device."""

    BTHOME = "bthome"
    """Broadcasts BTHome v2; its packet id has 8 bits."""
    RUUVI = "ruuvi"
    """Broadcasts Ruuvi's format 5; its sequence has 16 bits."""
    VALVE = "valve"
    """Accepts a connection, notifies a temperature, and takes commands."""


@dataclass(frozen=True, slots=True)
class BleDevice:
    """One device. `heard_by`: indexes of the gateways in its range."""

    name: str
    sort: Sort
    address: str
    heard_by: tuple[int, ...]

    @property
    def advertises(self) -> bool:
        """True if the device only advertises."""
        return self.sort is not Sort.VALVE


def ble_fleet(gateways: int, valves: int = 1) -> list[BleDevice]:
    """Return an advertiser of each sort in range of all gateways, one of each for each gateway alone, and `valves` for each."""
    everybody = tuple(range(gateways))
    alone = [(each,) for each in everybody]
    wanted = [(sort, heard_by) for heard_by in (everybody, *alone) for sort in (Sort.BTHOME, Sort.RUUVI)]
    wanted += [(Sort.VALVE, heard_by) for _ in range(valves) for heard_by in alone]
    return [
        BleDevice(f"{sort}-{n:02}", sort, f"C0:00:00:00:00:{n:02X}", heard_by) for n, (sort, heard_by) in enumerate(wanted, 1)
    ]


def advertised(device: BleDevice, n: int) -> tuple[int, bytes]:
    """Encode the `n`-th value: AD type and data (BTHome: bthome.io/format; Ruuvi: data format 5)."""
    if device.sort is Sort.BTHOME:
        return _SERVICE_DATA, struct.pack("<HBBBBh", _BTHOME, 0x40, 0, n % 256, 2, n)
    address = bytes.fromhex(device.address.replace(":", ""))
    measured = struct.pack(">BhHHhhhHBH", 5, 2 * n, 20_000, 50_000, 0, 0, 1000, 0xAC36, 0, n)
    return _MANUFACTURER, struct.pack("<H", _RUUVI) + measured + address


def advertised_n(body: bytes) -> int | None:
    """Return the counter in the body of an advertisement's event; `None` if no device of ours sent it."""
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
    """Return the counter of a reading."""
    return round(value * 100)


def settings(devices: Sequence[BleDevice], gateway: int, longest_retry_s: float) -> str:
    """Return section `[ble]` of a gateway's settings: the devices in its range."""
    text = f"""
[ble]
longest_retry_s = {longest_retry_s}
connect_timeout_s = 10.0
pause_scanning = false  # the simulated radio connects while it scans; pauses would slow many reconnects
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


def command_body(command: str, name: str) -> bytes:
    """Encode the write to a valve for the command `name`."""
    return f"ack:{name}".encode() if command == MOVE else name.encode()


def command_name_of(written: bytes) -> str:
    """Return the name of the command of a write."""
    return written.decode("ascii", "replace").removeprefix("ack:")
