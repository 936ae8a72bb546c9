"""Finds the device of an AMQP client's message. Pure."""

from fogline.address import CommandAddress, DeviceAddress, Reports, addressed_device, parse_address
from fogline.errors import Poison
from fogline.message import Message


def device_of(message: Message, address: Reports | CommandAddress | DeviceAddress) -> str:
    """Return a message's device: from its `to`, else its link's address, else property `device_id`. Raises `Poison`."""
    device: object = address.device or message.properties.get("device_id")
    if message.to:
        to = parse_address(message.to)
        if not isinstance(to, type(address)) or to.tenant != address.tenant or address.device not in ("", to.device):
            raise Poison("not-authorised", f"a message to {to} on a link for {address}")
        device = to.device or device
    if not isinstance(device, str):
        raise Poison("bad-identifier", "no device: send to .../{tenant}/{device}, or set the property device_id")
    return addressed_device(device, "device")
