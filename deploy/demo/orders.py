"""The commands that the demo's operator sends: which, how, and what became of each. Pure."""

from dataclasses import dataclass

from demo.ble_payload import MOVE, TURN
from fogline.command import State

TTLS_S = range(20, 31)
"""How long commands may take, in turn."""
VERBS = ("open", "close", "dim", "blink")


@dataclass(slots=True)
class Order:
    """One command. `name` is nobody else's: the device does it under this name, and the record carries it.

    A Bluetooth device knows its commands by few names: `verb` is the one that is sent, and `name` is in the body.

    What the operator reads in the end: `state` (ACCEPTED of a one-way command: the bridge took it), whether it is
    `provisional`, and `took_s`, in which time; `None` while it waits.
    """

    name: str
    device: str
    ttl_s: float
    durable: bool = True
    reply: bool = True
    idempotent: bool = False
    verb: str | None = None
    state: State | None = None
    provisional: bool = False
    took_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the newest record in `fogline.commands` says of a command."""

    name: str
    device: str
    state: State
    provisional: bool = False


def order(n: int, device: str, *, ble: bool = False) -> Order:
    """The `n`-th command: half of them are plain durable ones, the others direct, one-way or idempotent.

    `ble`: to a Bluetooth device; half of those are answered by its notification.
    """
    turn = n % 10
    return Order(
        name=f"{VERBS[n % len(VERBS)]}.{n}",
        device=device,
        ttl_s=float(TTLS_S[n % len(TTLS_S)]),
        durable=turn not in (2, 5),
        reply=turn not in (5, 8),
        idempotent=turn in (3, 9),
        verb=(MOVE if n % 2 else TURN) if ble else None,
    )
