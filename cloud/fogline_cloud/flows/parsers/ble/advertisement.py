"""Parser `ble-advertisement`: AD structures, recognised by a service's UUID or a company identifier."""

from typing import Self

from fogline.advertisement import Advertisement, decode, decode_heard, short_uuid
from fogline.events.event import Event
from fogline_cloud.flows.parsers import Leftover, Reading, Skip
from fogline_cloud.flows.parsers.ble import beacons, bthome, ruuvi
from fogline_cloud.flows.parsers.ble.decoding import Broadcast, Decoder
from fogline_cloud.flows.parsers.ble.extras import GOVEE, XIAOMI, is_govee
from fogline_cloud.flows.parsers.ble.keys import NO_KEYS, DeviceKeys

_BY_SERVICE: dict[str, Decoder] = {
    short_uuid(bthome.UUID16): bthome.decode,
    **dict.fromkeys(XIAOMI.uuids, XIAOMI.decode),
    short_uuid(beacons.EDDYSTONE_UUID16): beacons.decode_eddystone,
}
_BY_COMPANY: dict[int, Decoder] = {ruuvi.COMPANY: ruuvi.decode, beacons.APPLE: beacons.decode_ibeacon}


class Advertisements:
    """Parses advertisements. `keys`: keys of devices that encrypt."""

    def __init__(self, keys: DeviceKeys = NO_KEYS) -> None:
        self._keys = keys

    def with_keys(self, keys: DeviceKeys) -> Self:
        """Return a parser with these keys (`Keyed`)."""
        return type(self)(keys)

    def __call__(self, event: Event) -> list[Reading | Leftover]:
        """Parse one event: the device's readings, and beside at least one of them the RSSI if the gateway measured it.

        Raises `Skip` (`unknown-device`, and the reasons of the decoders) and `Poison` (`malformed`, `too-big`, `truncated`).
        """
        advertisement, reception = decode(event.data), decode_heard(event.properties)
        broadcast = Broadcast(advertisement, reception, self._keys.find(event.device, reception.address))
        data, decoder = _chosen(advertisement)
        readings = decoder(data, broadcast)
        if reception.rssi is not None and any(isinstance(each, Reading) for each in readings):
            readings.append(Reading("rssi", float(reception.rssi), unit="dBm"))
        return readings


parse = Advertisements()


def _chosen(advertisement: Advertisement) -> tuple[bytes, Decoder]:
    """Return the first known decoder, with its data: by service, then Govee's, then by manufacturer."""
    # Govee before the manufacturers, because its devices send an iBeacon too.
    for uuid, decoder in _BY_SERVICE.items():
        if uuid in advertisement.service_data:
            return advertisement.service_data[uuid], decoder
    if is_govee(advertisement):
        return b"", GOVEE.decode
    for company, decoder in _BY_COMPANY.items():
        if company in advertisement.manufacturer:
            return advertisement.manufacturer[company], decoder
    raise Skip("unknown-device", f"no decoder knows {_named(advertisement)}")


def _named(advertisement: Advertisement) -> str:
    services = [uuid.removesuffix("-0000-1000-8000-00805f9b34fb") for uuid in sorted(advertisement.service_data)]
    companies = [f"0x{number:04X}" for number in sorted(advertisement.manufacturer)]
    found = [*(f"service data of {each}" for each in services[:4]), *(f"company {each}" for each in companies[:4])]
    return ", ".join(found) or "an advertisement without service data and manufacturer specific data"
