"""What a client counts: every count and its meaning, in one place."""

from dataclasses import dataclass, field

from fogline_edge.profiles.profile import Why


@dataclass(slots=True)
class Counters:
    """What a client counts since it started, but for `connected`, which is 0 or 1 now.

    `connections`: CONNACKs that said yes. `failures`: attempts and connections that ended with an error. `sessions_lost`: how
    often the broker no longer had the session, so that what it had queued is lost. `received`: PUBLISHes. `again`: of these,
    marked DUP. `stored`, `duplicate`, `dead`: what the port told. `learned`: lists of names. `ignored`: passed over, by why.
    `acknowledged`: PUBACKs given to the connection that the PUBLISH came by. `unacknowledged`: durable too late for that: the
    broker sends them again. `paused`: how often reading stopped because the port had no room.
    """

    connections: int = 0
    connected: int = 0
    failures: int = 0
    sessions_lost: int = 0
    received: int = 0
    again: int = 0
    stored: int = 0
    duplicate: int = 0
    dead: int = 0
    learned: int = 0
    ignored: dict[Why, int] = field(default_factory=lambda: dict.fromkeys(Why, 0))
    acknowledged: int = 0
    unacknowledged: int = 0
    paused: int = 0
