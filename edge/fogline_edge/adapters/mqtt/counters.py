"""What the listener counts: every count and its meaning, in one place."""

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """What the listener counts since it started, but for `connected`, which is now.

    `connections`: sockets accepted. `received`: PUBLISHes and wills handed to the port. `acknowledged`: PUBACKs sent.
    `over_limit`: sockets closed because there were too many. `refused`: CONNECTs answered with no. How the others
    ended: `left` (DISCONNECT), `lost`, `malformed` (broke the protocol), `taken_over` (by the same client again),
    `timed_out` (no CONNECT, or silent beyond its keep alive), `slow_reader` (did not read its answers), `shut_down`.
    """

    connections: int = 0
    connected: int = 0
    received: int = 0
    acknowledged: int = 0
    refused: int = 0
    over_limit: int = 0
    left: int = 0
    lost: int = 0
    malformed: int = 0
    taken_over: int = 0
    timed_out: int = 0
    slow_reader: int = 0
    shut_down: int = 0
