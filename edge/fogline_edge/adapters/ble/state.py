"""State of the adapter. It is kept in the outbox's file, where `fogline-edge status` reads it."""

from typing import Any

import msgspec

from fogline.json_document import read_document

STATE_KEY = "ble/state"


class DeviceState(msgspec.Struct, frozen=True, kw_only=True):
    """State of one device. `heard_s`: seconds since its last sign of life. `link`: state of the link to a listed device."""

    device: str
    address: str
    profile: str
    heard_s: float | None
    rssi: int | None
    silent: bool
    link: str | None = None
    problem: str | None = None


class BleState(msgspec.Struct, frozen=True, kw_only=True):
    """State `at` a time (RFC 3339). `steps`, `counters`: see `counters`. `problem`: the present fault in one line."""

    at: str
    phase: str
    adapter: str | None
    problem: str | None
    steps: dict[str, int]
    counters: dict[str, int]
    devices: list[DeviceState]


def decode_state(data: bytes) -> BleState:
    """Decode JSON. Raises `Poison('malformed')`."""
    return read_document(data, BleState, "the state of the Bluetooth adapter")


def lines_of(state: BleState) -> list[str]:
    """Return the state as lines of text."""
    found = [f"bluetooth at {state.at}: {state.phase}" + (f", {state.adapter}" if state.adapter else "")]
    if state.problem:
        found.append(f"  problem: {state.problem}")
    for title, counts in (("steps", state.steps), ("counted", state.counters)):
        counted = ", ".join(f"{name} {count:,}" for name, count in counts.items() if count)
        found.append(f"  {title}: {counted or 'nothing'}")
    found.extend(f"  {_line_of(each)}" for each in state.devices)
    return found


def _line_of(device: DeviceState) -> str:
    heard = "not heard yet" if device.heard_s is None else f"heard {device.heard_s:.0f} s before"
    words: list[Any] = [device.device, device.address, device.profile, heard]
    if device.rssi is not None:
        words.append(f"{device.rssi} dBm")
    words += [each for each in ("SILENT" if device.silent else None, device.link, device.problem) if each]
    return ", ".join(words)
