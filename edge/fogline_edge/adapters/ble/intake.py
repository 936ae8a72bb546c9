"""What was heard or read to an arrival: pure."""

from urllib.parse import urlencode

from fogline.advertisement import CONTENT_TYPE, GATT_CONTENT_TYPE, Advertisement, Heard, encode_heard
from fogline.event import Arrival
from fogline_edge.adapters.ble.roster import Known
from fogline_edge.profiles.ble import body_of, counter_of

ADAPTER = "ble"


def of_advertisement(known: Known, advertisement: Advertisement, adapter: str) -> Arrival | None:
    """The arrival of an advertisement; `None` if nothing of it is kept. Raises `Poison` for what can be no bytes."""
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
        report=known.report,
        shared=profile.shared,
    )


def of_value(known: Known, characteristic: str, value: bytes, adapter: str) -> Arrival:
    """The arrival of a characteristic's value. `characteristic`: its UUID, in full and in lower case."""
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


def _properties(known: Known, adapter: str) -> str:
    return f"{encode_heard(Heard(address=known.address, rssi=known.rssi))}&{urlencode({'adapter': adapter})}"
