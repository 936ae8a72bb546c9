"""State of the adapter. It is kept in the outbox's file, where `fogline-edge status` reads it."""

from typing import Any

import msgspec

from fogline.documents.json_document import read_document
from fogline.errors import Poison
from fogline_edge.adapters.ble.supervision.outages import RadioOutage

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
    """State `at` a time (RFC 3339). `steps`, `counters`: see `counters`. `problem`: the present fault in one line.

    `outage`: the present time without scanning. `earlier`: the last ones, the newest last. `scan`: `active` or `passive`, and
    `scan_reason`: why, in words.
    """

    at: str
    phase: str
    adapter: str | None
    problem: str | None
    steps: dict[str, int]
    counters: dict[str, int]
    devices: list[DeviceState]
    outage: RadioOutage | None = None
    earlier: tuple[RadioOutage, ...] = ()
    scan: str = "active"
    scan_reason: str = ""


def decode_state(data: bytes) -> BleState:
    """Decode JSON. Raises `Poison('malformed')`."""
    return read_document(data, BleState, "the state of the Bluetooth adapter")


def kept_outages(data: bytes | None) -> tuple[RadioOutage, ...]:
    """Return the outages in the state of an earlier run, none if there is no such state or it cannot be read."""
    try:
        return () if data is None else decode_state(data).earlier
    except Poison:
        return ()


def lines_of(state: BleState) -> list[str]:
    """Return the state as lines of text."""
    found = [f"bluetooth at {state.at}: {state.phase}" + (f", {state.adapter}" if state.adapter else "")]
    if state.scan_reason:
        found.append(f"  {state.scan} scan: {state.scan_reason}")
    if state.problem:
        since = f" since {state.outage.since}" if state.outage else ""
        found.append(f"  problem{since}: {state.problem}")
    found.extend(f"  no scan from {each.since} on for {each.lasted_s:,.0f} s: {each.problem}" for each in state.earlier)
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
