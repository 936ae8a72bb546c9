"""What the listener counts: every count and its meaning, in one place."""

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """What the listener counts since it started, but for `connected`, which is now.

    `connections`: sockets accepted. `received`: PUBLISHes, wills and notes of devices that come and go, handed to
    the port, and answers. `acknowledged`: PUBACKs and PUBRECs sent. `completed`: PUBCOMPs sent. `over_limit`:
    sockets closed because there were too many. `refused`: CONNECTs answered with no. How the others ended: `left`
    (DISCONNECT), `lost`, `malformed` (broke the protocol), `taken_over` (by the same client again), `timed_out` (no
    CONNECT, or silent beyond its keep alive), `slow_reader` (did not read what it was sent), `shut_down`.

    `slowed`: how often a connection was not read for a while, because its device had sent more than its share.

    `notes_dropped`: notes of devices that come and go, discarded because too many waited for room.
    `properties_dropped`: events whose user properties were too long and left out. `subscribed`, `subscriptions_refused`:
    topic filters granted, and not. `sessions_restored`: sessions that outlived a restart of the gateway;
    `sessions_unreadable`: what was kept of one and could not be read; `sessions_dropped`: given up for want of room.

    Commands: `commands` handed over, and what was told of them: `commands_taken` (the device has it), `commands_not_sent`
    (certainly not), `commands_lost` (nobody knows), `commands_refused` (it cannot be given to the device).
    `commands_resent`: PUBLISHes and PUBRELs at QoS 2 sent again on a new connection. `answers`: devices' answers handed
    over.
    """

    connections: int = 0
    connected: int = 0
    received: int = 0
    acknowledged: int = 0
    completed: int = 0
    refused: int = 0
    over_limit: int = 0
    left: int = 0
    lost: int = 0
    malformed: int = 0
    taken_over: int = 0
    timed_out: int = 0
    slow_reader: int = 0
    shut_down: int = 0
    slowed: int = 0
    notes_dropped: int = 0
    properties_dropped: int = 0
    subscribed: int = 0
    subscriptions_refused: int = 0
    sessions_restored: int = 0
    sessions_unreadable: int = 0
    sessions_dropped: int = 0
    commands: int = 0
    commands_taken: int = 0
    commands_not_sent: int = 0
    commands_lost: int = 0
    commands_refused: int = 0
    commands_resent: int = 0
    answers: int = 0
