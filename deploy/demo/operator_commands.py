"""Commands of the demo's operator, and their results. Pure."""

from dataclasses import dataclass

from demo.ble_payload import MOVE, TURN
from fogline.commands.command import CommandState

TTLS_S = range(20, 31)
"""Times to live of direct commands, in turn."""
DURABLE_TTLS_S = range(90, 121)
"""Times to live of durable ones, in turn. They are to outlive a restart of Kafka and a half-open line after it."""
VERBS = ("open", "close", "dim", "blink")


@dataclass(slots=True)
class SentCommand:
    """One command. `name` is unique: the device notes it when it executes the command, and the record carries it.

    A Bluetooth device has few command names: `verb` is the one that is sent, and `name` is in the body.

    The operator's result is in `state` (`None` while it waits; ACCEPTED: the bridge took a one-way command), `provisional`,
    and `took_s`, the time until it came. `sent_s`, `ended_s`: when it was sent and the result came, by `time.time()`.
    """

    name: str
    device: str
    ttl_s: float
    durable: bool = True
    reply: bool = True
    idempotent: bool = False
    verb: str | None = None
    state: CommandState | None = None
    provisional: bool = False
    took_s: float = 0.0
    sent_s: float = 0.0
    ended_s: float | None = None


@dataclass(frozen=True, slots=True)
class CommandRow:
    """The newest record of a command in `fogline.commands`."""

    name: str
    device: str
    state: CommandState
    provisional: bool = False


def planned_command(n: int, device: str, *, ble: bool = False) -> SentCommand:
    """Return the `n`-th command: half of them are plain durable ones, the others direct, one-way or idempotent.

    `ble`: for a Bluetooth device, which answers half of them by a notification.
    """
    turn = n % 10
    durable = turn not in (2, 5)
    ttls_s = DURABLE_TTLS_S if durable else TTLS_S
    return SentCommand(
        name=f"{VERBS[n % len(VERBS)]}.{n}",
        device=device,
        ttl_s=float(ttls_s[n % len(ttls_s)]),
        durable=durable,
        reply=turn not in (5, 8),
        idempotent=turn in (3, 9),
        verb=(MOVE if n % 2 else TURN) if ble else None,
    )
