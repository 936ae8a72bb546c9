"""Devices that are read by libraries which are installed on their own: `fogline-cloud[xiaomi]`, `fogline-cloud[govee]`.

The libraries keep what they saw and pass over what does not fit to it (a counter that went back, a second copy). Here
every event has an object of its own, so nothing is passed over because of another.
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
from fogline_cloud.flows.parsers import Reading, Skip
from fogline_cloud.flows.parsers.ble.decoding import Broadcast

_UNITS = {
    "°C": "Cel", "μS/cm": "uS/cm", "µS/cm": "uS/cm", "μg/m³": "ug/m3", "µg/m³": "ug/m3", "mg/m³": "mg/m3", "mbar": "hPa",
    "ohm": "Ohm", "°": "deg", "L": "l", "mL": "ml", "m³": "m3",
}  # fmt: skip
_RSSI = "signal_strength"
_NOBODY = "00:00:00:00:00:00"


class Library(msgspec.Struct, frozen=True):
    """A decoder in the manner of Home Assistant's: class `kind` of `module`, in our extra `extra`.

    `takes_key`: it is made with a key. `uuids`: the services whose data it reads.
    """

    extra: str
    module: str
    kind: str
    takes_key: bool = False
    uuids: tuple[str, ...] = ()

    def decode(self, _: bytes, broadcast: Broadcast) -> list[Reading]:
        """What the library makes of it. Raises `Skip` (`not-installed`, `no-key`, `wrong-key`, `nothing`), `Poison`."""
        make, info = self._loaded()
        found = make(broadcast.key) if self.takes_key else make()
        try:
            update = found.update(_service_info(info, broadcast))
        except Exception as error:  # noqa: BLE001 - the library is not ours, and the bytes are anybody's
            raise Poison("malformed", f"{self.module} cannot read it: {type(error).__name__}") from None
        readings = list(_readings(update))
        if not readings:
            raise self._silence(found, broadcast)
        return readings

    def _loaded(self) -> tuple[Any, Any]:
        try:
            return _load(self.module, self.kind)
        except ImportError:
            raise Skip(
                "not-installed", f"{self.module} is not installed on Spark's workers: pip install 'fogline-cloud[{self.extra}]'"
            ) from None

    def _silence(self, found: Any, broadcast: Broadcast) -> Skip:
        """Why the library found nothing."""
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
    """By its name, its number as a company, which is not registered, or a service of its own."""
    return (
        (advertisement.name or "").startswith(_GOVEE_NAMES)
        or _GOVEE_COMPANY in advertisement.manufacturer
        or not _GOVEE_SERVICES.isdisjoint(advertisement.services)
    )


@cache
def _load(module: str, kind: str) -> tuple[Any, Any]:
    """The library's class, and the class of what it is given. It says nothing of its own: events have their reasons."""
    logging.getLogger(module).setLevel(logging.CRITICAL)
    return getattr(import_module(module), kind), import_module("home_assistant_bluetooth").BluetoothServiceInfo


def _service_info(kind: Any, broadcast: Broadcast) -> Any:
    told, heard = broadcast.advertisement, broadcast.heard
    return kind(
        name=told.name or "",
        address=heard.address or _NOBODY,
        rssi=heard.rssi or 0,
        manufacturer_data=told.manufacturer,
        service_data=told.service_data,
        service_uuids=list(told.services),
        source="",
    )


def _readings(update: Any) -> Iterator[Reading]:
    """Numbers, texts, flags (1 and 0) and events, by metric; the RSSI is told by the gateway."""
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
    """A device of several parts says which: `remote.temperature`."""
    return str(key.key) if key.device_id is None else f"{key.device_id}.{key.key}"


def _reading(metric: str, value: Any, unit: str | None) -> Reading:
    if metric.endswith("humidity") and unit == "%":
        unit = "%RH"
    if isinstance(value, date | datetime):
        return Reading(metric, text=value.isoformat())
    return Reading(metric, text=value) if isinstance(value, str) else Reading(metric, float(value), unit=unit)
