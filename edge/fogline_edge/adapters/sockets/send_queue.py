"""The bytes that a peer has not got."""

import asyncio
import fcntl
import socket
import sys
import termios


def unacknowledged_bytes(transport: asyncio.Transport) -> int | None:
    """Return the bytes that the peer's TCP has not acknowledged (tcp(7), SIOCOUTQ). None if the socket is closed.

    Those that wait in the transport are included, and the FIN counts as one byte.
    """
    raw: socket.socket = transport.get_extra_info("socket")
    try:
        sent = fcntl.ioctl(raw.fileno(), termios.TIOCOUTQ, bytes(4))
    except (OSError, ValueError):  # the socket is closed
        return None
    return int.from_bytes(sent, sys.byteorder) + transport.get_write_buffer_size()
