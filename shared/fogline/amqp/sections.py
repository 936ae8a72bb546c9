"""Where a message's content stands (AMQP 1.0 part 3, section 3.2). Pure.

Proton keeps the last of several Data sections, and none of what it does not know: read here, nothing is lost silently.
"""

DATA = 0x75
_WITH_SIZE = frozenset([*range(0x70, DATA), DATA, 0x78])
"""Header to application properties, Data, footer: a list, a map or a binary. A body of another kind is proton's to read."""
_EMPTY_LIST = 0x45
_SIZE_BYTES = {0xA0: 1, 0xC0: 1, 0xC1: 1, 0xB0: 4, 0xD0: 4, 0xD1: 4}
"""By the constructor of a binary, list or map: how many bytes say its size."""


def content_of(data: bytes) -> bytes | None:
    """The content of all Data sections, one after the other; `None` for a message with another body, or without one.

    Raises `ValueError` for bytes that are not the sections of a message.
    """
    parts: list[bytes] = []
    at = 0
    while at < len(data):
        code, at = _descriptor(data, at)
        if code not in _WITH_SIZE:
            break
        start, end = _extent(data, at)
        if code == DATA:
            parts.append(data[start:end])
        at = end
    return (parts[0] if len(parts) == 1 else b"".join(parts)) if parts else None


def _descriptor(data: bytes, at: int) -> tuple[int, int]:
    """A section's number, and where its value begins."""
    if data[at : at + 2] == b"\x00\x53" and at + 2 < len(data):
        return data[at + 2], at + 3
    if data[at : at + 2] == b"\x00\x80" and at + 10 <= len(data):
        return int.from_bytes(data[at + 2 : at + 10], "big"), at + 10
    raise ValueError(f"no section begins at byte {at}")


def _extent(data: bytes, at: int) -> tuple[int, int]:
    """Where a section's value begins, after its size, and where it ends."""
    constructor = data[at] if at < len(data) else None
    if constructor == _EMPTY_LIST:
        return at + 1, at + 1
    width = _SIZE_BYTES.get(constructor or 0)
    if width is None:
        raise ValueError(f"no list, map or binary begins at byte {at}")
    start = at + 1 + width
    end = start + int.from_bytes(data[at + 1 : start], "big")
    if end > len(data):
        raise ValueError(f"a section ends {end - len(data)} bytes after the message")
    return start, end
