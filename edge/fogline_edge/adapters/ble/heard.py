"""What bleak tells of an advertisement, in our own words: pure."""

from bleak.backends.scanner import AdvertisementData

from fogline.advertisement import Advertisement

NO_RSSI = -127
"""bleak's word for: it was not on the air, something else of the device has changed."""


def advertisement_of(data: AdvertisementData) -> Advertisement:
    """All that the device has said lately."""
    return Advertisement(
        name=data.local_name,
        manufacturer=dict(data.manufacturer_data),
        service_data={uuid.lower(): body for uuid, body in data.service_data.items()},
        services=tuple(sorted({uuid.lower() for uuid in data.service_uuids})),
        tx_power=data.tx_power,
    )
