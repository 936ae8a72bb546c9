"""What the adapter says of itself: kept in the outbox's file, so that `fogline-edge status` can show it."""

from typing import Any

import msgspec

from fogline.document import read_document

STATE_KEY = "ble/state"
"""Under which it is kept."""


class DeviceState(msgspec.Struct, frozen=True, kw_only=True):
    """One device. `heard_s`: seconds since it said something, `None` for not yet. `link`: of one that is connected to."""

    device: str
    address: str
    profile: str
    heard_s: float | None
    rssi: int | None
    silent: bool
    link: str | None = None
    problem: str | None = None


class BleState(msgspec.Struct, frozen=True, kw_only=True):
    """All of it, as it was `at` (RFC 3339). `steps`, `counters`: as in `counters`. `problem`: what is wrong, in one line."""

    at: str
    phase: str
    adapter: str | None
    problem: str | None
    steps: dict[str, int]
    counters: dict[str, int]
    devices: list[DeviceState]


def encode_state(state: BleState) -> bytes:
    """As JSON."""
    return msgspec.json.encode(state)


def decode_state(data: bytes) -> BleState:
    """The inverse. Raises `Poison('malformed')`."""
    return read_document(data, BleState, "the state of the Bluetooth adapter")


def convert_state(state: dict[str, Any]) -> BleState:
    """Of the decoded JSON."""
    return msgspec.convert(state, BleState)


def lines_of(state: BleState) -> list[str]:
    """For people."""
    found = [f"bluetooth at {state.at}: {state.phase}" + (f", {state.adapter}" if state.adapter else "")]
    if state.problem:
        found.append(f"  problem: {state.problem}")
    for title, counts in (("steps", state.steps), ("counted", state.counters)):
        said = ", ".join(f"{name} {count:,}" for name, count in counts.items() if count)
        found.append(f"  {title}: {said or 'nothing'}")
    found.extend(f"  {_line_of(each)}" for each in state.devices)
    return found


def _line_of(device: DeviceState) -> str:
    heard = "not heard yet" if device.heard_s is None else f"heard {device.heard_s:.0f} s before"
    words: list[Any] = [device.device, device.address, device.profile, heard]
    if device.rssi is not None:
        words.append(f"{device.rssi} dBm")
    words += [each for each in ("SILENT" if device.silent else None, device.link, device.problem) if each]
    return ", ".join(words)
