"""Settings of Bluetooth LE."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from fogline_edge.settings_types import BLE_ADDRESS_PATTERN, Identifier, Positive, StrictTable


class BleDeviceSettings(StrictTable, frozen=True, kw_only=True):
    """A Bluetooth LE device that the gateway connects to."""

    address: Annotated[str, Meta(pattern=BLE_ADDRESS_PATTERN)]
    """Its Bluetooth address."""
    profile: str
    """Name of a profile, or path of a profile of your own (`.toml`)."""
    device: Identifier | None = None
    """Name of the device. Default: the name that its profile gives it."""
    silence_s: Annotated[float, Meta(gt=0)] | None = None
    """Silence after which the gateway reconnects to the device, in seconds. Default: `device_silence_s`."""
    min_interval_s: Annotated[float, Meta(ge=0)] | None = None
    """Shortest interval between two of its advertisements that become events, in seconds. Default: that of the profile."""


class BleSettings(StrictTable, frozen=True, kw_only=True):
    """Bluetooth LE through BlueZ: advertisements of the profiles, and connections to the listed devices."""

    adapter: str | None = None
    """Name (`hci0`) or address of the adapter. Default: the first that is on."""
    profiles: list[str] = msgspec.field(default_factory=list)
    """Profiles whose advertisements are stored, from any device."""
    devices: Annotated[list[BleDeviceSettings], Meta(max_length=256)] = msgspec.field(default_factory=list)
    """Devices to connect to."""
    scan: Literal["active", "passive", "auto"] = "auto"
    """`passive` sends no scan requests, which saves batteries of sensors. `auto`: passive where BlueZ and profiles allow it."""
    max_devices: Positive = 1000
    """Devices beside the listed ones."""
    device_events_s: Annotated[float, Meta(gt=0)] = 100.0
    """Advertisements and values per second of one device. More are discarded, because Bluetooth cannot be slowed down."""
    device_burst: Positive = 1000
    """Advertisements and values of one device at once."""
    silence_s: Annotated[float, Meta(gt=0)] = 20.0
    """Time without advertisements after which a scanner is restarted, in seconds. The ladder's next steps follow at once."""
    device_silence_s: Annotated[float, Meta(gt=0)] = 600.0
    """Silence after which the gateway reconnects to a listed device, in seconds."""
    power_on: bool = True
    """`true`: the gateway switches on an adapter that is off."""
    power_on_s: Annotated[float, Meta(ge=0)] = 5.0
    """Time that an adapter is off before the gateway switches it on, in seconds."""
    pause_scanning: bool = True
    """`true`: scanning pauses while the gateway connects to a device: a Raspberry Pi's radio needs that (docs/bluetooth.md)."""
    connect_timeout_s: Annotated[float, Meta(gt=0)] = 20.0
    """Time limit for connecting, in seconds."""
    longest_retry_s: Annotated[float, Meta(gt=0, le=600)] = 30.0
    """Longest pause between two connection attempts, in seconds."""
    status_s: Annotated[float, Meta(gt=0)] = 30.0
    """Interval at which the state for `fogline-edge status` is written, in seconds."""
