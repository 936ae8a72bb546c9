"""The result of a write to what an operator is told: pure.

Error codes of the Attribute Protocol: Bluetooth Core Specification, Vol 3, Part F, section 3.4.1.1; common profile and
service error codes: its Supplement, Part B. 0x80 to 0x9F are the application's own.
"""

from fogline.command import Answer

WRITTEN = Answer(204)
"""The device's write response."""
_TEXT = "text/plain"
_STATUS = {
    0x01: 404,  # invalid handle
    0x02: 405,  # read not permitted
    0x03: 405,  # write not permitted
    0x05: 401,  # insufficient authentication
    0x06: 501,  # request not supported
    0x07: 416,  # invalid offset
    0x08: 403,  # insufficient authorization
    0x09: 503,  # prepare queue full
    0x0A: 404,  # attribute not found
    0x0C: 401,  # encryption key size too short
    0x0D: 413,  # invalid attribute value length
    0x0F: 401,  # insufficient encryption
    0x11: 503,  # insufficient resources
    0x13: 422,  # value not allowed
    0xFC: 403,  # write request rejected
    0xFE: 409,  # procedure already in progress
    0xFF: 422,  # out of range
}
_OTHER = 500
_APPLICATION = range(0x80, 0xA0)
_APPLICATIONS = 422


def is_answer(code: int) -> bool:
    """Whether an error code is the device's: BlueZ says 0x00 when the link ended before there was one."""
    return code != 0


def answer_of(code: int, meaning: str) -> Answer:
    """An ATT error response as an answer; the code stands in its body."""
    status = _APPLICATIONS if code in _APPLICATION else _STATUS.get(code, _OTHER)
    return Answer(status, f"ATT error 0x{code:02X}: {meaning}".encode(), _TEXT)
