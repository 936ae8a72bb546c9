"""The objects of a BTHome v2 payload, as far as a gateway must know them (bthome.io/format). Pure."""

_BUTTON, _COMMAND, _DIMMER = 0x3A, 0x3B, 0x3C
_COMMAND_ARGUMENTS = 0x1F
_BY_WIDTH = {
    1: (
        *(0x00, 0x01, 0x09, *range(0x0F, 0x12), *range(0x15, 0x30), _BUTTON, 0x46, 0x57, 0x58, 0x59),
        *(0x60, 0x64, 0x65),
    ),
    2: (
        *(0x02, 0x03, 0x06, 0x07, 0x08, 0x0C, 0x0D, 0x0E, 0x12, 0x13, 0x14, _DIMMER, 0x3D, 0x3F, 0x40, 0x41, 0x43, 0x44, 0x45),
        *(0x47, 0x48, 0x49, 0x4A, 0x51, 0x52, 0x56, 0x5A, 0x5D, 0x5E, 0x5F, 0x61, 0xF0),
    ),
    3: (0x04, 0x05, 0x0A, 0x0B, 0x42, 0x4B, 0xF2),
    4: (0x3E, 0x4C, 0x4D, 0x4E, 0x4F, 0x50, 0x55, 0x5B, 0x5C, 0x62, 0x63, 0xF1),
}
WIDTHS = {number: width for width, numbers in _BY_WIDTH.items() for number in numbers}
"""Bytes of each object whose length is fixed. The others begin with a byte that tells it: command, text (0x53), raw (0x54)."""
_WITH_LENGTH = {0x53, 0x54}


def has_event(objects: bytes) -> bool:
    """Return True if the objects hold an event: a button or a dimmer that was used, or a command. Others measure a state."""
    at = 0
    while at + 1 < len(objects):
        number, first = objects[at], objects[at + 1]
        if number == _COMMAND or (number in (_BUTTON, _DIMMER) and first):
            return True
        if number in _WITH_LENGTH:
            at += 2 + first
        elif number in WIDTHS:
            at += 1 + WIDTHS[number]
        else:
            return False
    return False
