"""Advertisements and values as arrivals. Pure."""

from urllib.parse import urlencode

from fogline.advertisement import CONTENT_TYPE, GATT_CONTENT_TYPE, Advertisement, ReceivedAdvertisement, encode_heard
from fogline.events.event import Arrival
from fogline_edge.adapters.ble.roster import KnownDevice
from fogline_edge.profiles.ble import body_of, counter_of, report_of

ADAPTER = "ble"


def of_advertisement(known: KnownDevice, advertisement: Advertisement, adapter: str) -> Arrival | None:
    """Return the arrival of an advertisement; `None` if the profile keeps nothing. Raises `Poison` if it cannot be encoded."""
    profile = known.profile
    body = body_of(profile, advertisement)
    if not body:
        return None
    return Arrival(
        device=known.device,
        channel=profile.channel,
        lane=profile.lane,
        type=profile.type,
        content_type=CONTENT_TYPE,
        data=body,
        adapter=ADAPTER,
        evidence=counter_of(profile, advertisement),
        properties=_properties(known, adapter),
        report=report_of(profile, advertisement, known.report),
        shared=profile.shared,
    )


def of_value(known: KnownDevice, characteristic: str, value: bytes, adapter: str) -> Arrival:
    """Return the arrival of a characteristic's value. `characteristic`: its UUID, in full and in lower case."""
    return Arrival(
        device=known.device,
        channel=characteristic,
        lane=known.profile.lane,
        type=known.profile.type,
        content_type=GATT_CONTENT_TYPE,
        data=value,
        adapter=ADAPTER,
        properties=_properties(known, adapter),
    )


def _properties(known: KnownDevice, adapter: str) -> str:
    return f"{encode_heard(ReceivedAdvertisement(address=known.address, rssi=known.rssi))}&{urlencode({'adapter': adapter})}"
