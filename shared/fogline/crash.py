"""Named places at which a process ends as if it were killed, so that tests see what a restart makes of it.

`FOGLINE_CRASH_AT=after_commit_before_ack` in the environment chooses one; without it a place is an empty function.
"""

import os
import signal
from collections.abc import Callable
from enum import StrEnum

VARIABLE = "FOGLINE_CRASH_AT"


class CrashPoint(StrEnum):
    """All of them.

    The first two concern the outbox, the third the uplink, the next three commands at the gateway, the next five a
    shard, the last three direct commands at the bridge.
    """

    BEFORE_COMMIT = "before_commit"
    AFTER_COMMIT_BEFORE_ACK = "after_commit_before_ack"
    AFTER_SEND_BEFORE_SETTLE = "after_send_before_settle"
    BEFORE_SENDING_COMMIT = "before_sending_commit"
    AFTER_SENDING_COMMIT_BEFORE_DEVICE = "after_sending_commit_before_device"
    AFTER_ANSWER_COMMIT = "after_answer_commit"
    BEFORE_INIT_TRANSACTIONS = "before_init_transactions"
    AFTER_TAKE_BEFORE_READY = "after_take_before_ready"
    BEFORE_PRODUCE = "before_produce"
    IN_TRANSACTION = "in_transaction"
    AFTER_COMMIT_BEFORE_SETTLING = "after_commit_before_settling"
    BEFORE_COMMAND_SENT = "before_command_sent"
    BEFORE_COMMAND_END_COMMIT = "before_command_end_commit"
    BEFORE_COMMAND_SETTLED = "before_command_settled"


def _go_on(point: CrashPoint) -> None:
    """Nothing is chosen."""


def _chosen(name: str | None) -> Callable[[CrashPoint], None]:
    """What a place does. Raises `ValueError`: there is no such place."""
    if not name:
        return _go_on
    chosen = CrashPoint(name)

    def crash(point: CrashPoint) -> None:
        if point is chosen:
            os.kill(os.getpid(), signal.SIGKILL)

    return crash


crash_point = _chosen(os.environ.get(VARIABLE))
"""Called where a process may be made to end."""
