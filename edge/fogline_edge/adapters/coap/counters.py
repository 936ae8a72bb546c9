"""What the listener counts: every count and its meaning, in one place."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Counters:
    """What the listener counts since it started.

    Datagrams: `datagrams` read; of them `dropped` without a word (too many), `cut` (longer than can be read, dropped),
    `malformed` (no CoAP), `duplicates` (answered as the first copy was, or nothing yet), `unsent` (an answer that the
    system did not take). Requests: `received` handed to the port, `acknowledged` answered after their commit, `blocks`
    acknowledged with 2.31, `slowed` answered 5.03 because the port had no room, `too_many` answered 4.29; `refused`:
    all other errors, by reason. Responses that went separately: `separate`, of them `undelivered` (rejected, or not
    acknowledged in time). Commands: `asks` that waited for one, `asks_over_limit` that could not, `commands` sent,
    `answers` to commands handed on.
    """

    datagrams: int = 0
    dropped: int = 0
    cut: int = 0
    malformed: int = 0
    duplicates: int = 0
    unsent: int = 0
    received: int = 0
    acknowledged: int = 0
    blocks: int = 0
    slowed: int = 0
    too_many: int = 0
    separate: int = 0
    undelivered: int = 0
    asks: int = 0
    asks_over_limit: int = 0
    commands: int = 0
    answers: int = 0
    refused: dict[str, int] = field(default_factory=dict)
