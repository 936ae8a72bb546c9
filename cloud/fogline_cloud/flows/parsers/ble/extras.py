"""Decoders from libraries that are installed separately: `fogline-cloud[xiaomi]`, `fogline-cloud[govee]`.

A library's object ignores advertisements that do not fit earlier ones, so each event gets an object of its own.
"""

import logging
from collections.abc import Iterator
from datetime import date, datetime
from functools import cache
from importlib import import_module
from typing import Any

import msgspec

from fogline.advertisement import Advertisement, short_uuid
from fogline.errors import Poison
from fogline_cloud.flows.parsers import Leftover, Reading, Skip
from fogline_cloud.flows.parsers.ble.decoding import Broadcast

_UNITS = {
    "°C": "Cel", "μS/cm": "uS/cm", "µS/cm": "uS/cm", "μg/m³": "ug/m3", "µg/m³": "ug/m3", "mg/m³": "mg/m3", "mbar": "hPa",
    "ohm": "Ohm", "°": "deg", "L": "l", "mL": "ml", "m³": "m3",
}  # fmt: skip
_RSSI = "signal_strength"
_NO_ADDRESS = "00:00:00:00:00:00"


class Library(msgspec.Struct, frozen=True):
    """A library with Home Assistant's interface: class `kind` of `module`, installed by our extra `extra`."""

    extra: str
    module: str
    kind: str
    takes_key: bool = False  # the class takes a key
    uuids: tuple[str, ...] = ()  # the services whose data it decodes

    def decode(self, _: bytes, broadcast: Broadcast) -> list[Reading | Leftover]:
        """Decode with the library. Raises `Skip` (`not-installed`, `no-key`, `wrong-key`, `nothing`) and `Poison`."""
        make, info = self._loaded()
        found = make(broadcast.key) if self.takes_key else make()
        try:
            update = found.update(_service_info(info, broadcast))
        except Exception as error:  # noqa: BLE001 - a foreign library may raise anything on foreign bytes
            raise Poison("malformed", f"{self.module} cannot decode it: {type(error).__name__}") from None
        readings = list(_readings(update))
        if not readings:
            raise self._nothing_found(found, broadcast)
        return readings

    def _loaded(self) -> tuple[Any, Any]:
        try:
            return _load(self.module, self.kind)
        except ImportError:
            raise Skip(
                "not-installed", f"{self.module} is not installed on Spark's workers: pip install 'fogline-cloud[{self.extra}]'"
            ) from None

    def _nothing_found(self, found: Any, broadcast: Broadcast) -> Skip:
        scheme = getattr(found, "encryption_scheme", None)
        if scheme is not None and scheme.value != "none":
            if broadcast.key is None:
                return Skip("no-key", "encrypted, and no key of this device or address is in [flow] ble_keys")
            if not found.bindkey_verified:
                return Skip("wrong-key", "the key of this device does not fit this advertisement")
        return Skip("nothing", f"{self.module} finds no value in it")


XIAOMI = Library(
    extra="xiaomi",
    module="xiaomi_ble",
    kind="XiaomiBluetoothDeviceData",
    takes_key=True,
    uuids=tuple(short_uuid(number) for number in (0xFE95, 0xFD50, 0x181B, 0x181D)),
)
"""MiBeacon, HHCCJCY10, scales."""

GOVEE = Library(extra="govee", module="govee_ble", kind="GoveeBluetoothDeviceData")
_GOVEE_NAMES = ("GV", "Govee", "ihoment_H")
_GOVEE_COMPANY = 0xEC88
_GOVEE_SERVICES = {
    short_uuid(number) for number in (0xEC88, 0x5550, 0x8151, 0x8251, 0x8351, 0x8451, 0x8551, 0x9151, 0x9851)
}  # fmt: skip


def is_govee(advertisement: Advertisement) -> bool:
    """Return True if the name, the (unregistered) company identifier or a service is Govee's."""
    return (
        (advertisement.name or "").startswith(_GOVEE_NAMES)
        or _GOVEE_COMPANY in advertisement.manufacturer
        or not _GOVEE_SERVICES.isdisjoint(advertisement.services)
    )


@cache
def _load(module: str, kind: str) -> tuple[Any, Any]:
    # The library's own log lines would repeat the reasons in the events.
    logging.getLogger(module).setLevel(logging.CRITICAL)
    return getattr(import_module(module), kind), import_module("home_assistant_bluetooth").BluetoothServiceInfo


def _service_info(kind: Any, broadcast: Broadcast) -> Any:
    advertisement, reception = broadcast.advertisement, broadcast.reception
    return kind(
        name=advertisement.name or "",
        address=reception.address or _NO_ADDRESS,
        rssi=reception.rssi or 0,
        manufacturer_data=advertisement.manufacturer,
        service_data=advertisement.service_data,
        service_uuids=list(advertisement.services),
        source="",
    )


def _readings(update: Any) -> Iterator[Reading | Leftover]:
    """Yield numbers, texts, flags (1 and 0) and events, ordered by metric. The gateway measures the RSSI.

    Some devices report a quantity in error as a word: not understood.
    """
    units = {key: each.native_unit_of_measurement for key, each in update.entity_descriptions.items()}
    for key, each in sorted(update.entity_values.items(), key=_order):
        unit = units.get(key)
        if key.key != _RSSI and each.native_value is not None:
            yield _reading(_metric(key), each.native_value, None if unit is None else _UNITS.get(str(unit), str(unit)))
    for key, each in sorted(update.binary_entity_values.items(), key=_order):
        if each.native_value is not None:
            yield Reading(_metric(key), float(each.native_value))
    for key, each in sorted(update.events.items(), key=_order):
        yield Reading(_metric(key), text=str(each.event_type))
        for name, value in (each.event_properties or {}).items():
            if value is not None:
                yield _reading(f"{_metric(key)}.{name}", value, None)


def _order(item: tuple[Any, Any]) -> str:
    return _metric(item[0])


def _metric(key: Any) -> str:
    """Return the metric, with the part of a device of several parts: `remote.temperature`."""
    return str(key.key) if key.device_id is None else f"{key.device_id}.{key.key}"


def _reading(metric: str, value: Any, unit: str | None) -> Reading | Leftover:
    if metric.endswith("humidity") and unit == "%":
        unit = "%RH"
    if isinstance(value, date | datetime):
        return Reading(metric, text=value.isoformat())
    if isinstance(value, str) and unit is not None:
        return Leftover(metric, f"{value!a} instead of a number")
    return Reading(metric, text=value) if isinstance(value, str) else Reading(metric, float(value), unit=unit)
