"""What a program at a gateway says of its devices: their descriptions, and which are online. Pure.

An event of type `device` describes a device, one of type `availability` says whether it is online. The bridge notes both in the
registry of devices. Neither is a sign of the device itself.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from fogline.documents.json_document import read_document
from fogline.errors import Poison

DESCRIPTION = "device"
"""Type of an event whose data is a `DeviceDescription`."""
AVAILABILITY = "availability"
"""Type of an event that says whether a device is online."""
MAX_TEXT = 128

_Text = Annotated[str, Meta(max_length=MAX_TEXT)]
_ONLINE = {"online": True, "true": True, "1": True, "offline": False, "false": False, "0": False}


class DeviceDescription(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a program knows of a device that it has let in. `name`: the one that people gave it."""

    name: _Text = ""
    vendor: _Text = ""
    model: _Text = ""
    description: _Text = ""
    power_source: _Text = ""
    firmware: _Text = ""


class _State(msgspec.Struct):
    state: str


def encode_description(description: DeviceDescription) -> bytes:
    """Return the data of an event of type `device`, as JSON."""
    return msgspec.json.encode(description)


def read_description(data: bytes) -> DeviceDescription | None:
    """Return the description in the data of an event; `None` if there is none."""
    try:
        return read_document(data, DeviceDescription, "a description of a device")
    except Poison:
        return None


def read_availability(data: bytes) -> bool | None:
    """Return whether a device is online: `online`, `true` or 1 in any case, or a JSON object with such a `state`.

    `None`: the data says neither.
    """
    if data[:1] == b"{":
        try:
            data = read_document(data, _State, "an availability").state.encode()
        except Poison:
            return None
    return _ONLINE.get(data.decode("utf-8", "replace").casefold())
