"""Points at which a process kills or stops itself, for tests of the restart and of the stop.

`FOGLINE_CRASH_AT=after_commit_before_ack` selects a point for SIGKILL, `FOGLINE_STOP_AT` one for SIGTERM.
"""

import os
import signal
from enum import StrEnum

VARIABLE = "FOGLINE_CRASH_AT"
STOP_VARIABLE = "FOGLINE_STOP_AT"


class CrashPoint(StrEnum):
    """All crash points: of the outbox, the uplink, commands at the gateway, a shard, direct commands, and more shards."""

    BEFORE_COMMIT = "before_commit"
    AFTER_COMMIT_BEFORE_ACK = "after_commit_before_ack"
    BEFORE_BODY_COMMIT = "before_body_commit"
    AFTER_BODY_COMMIT_BEFORE_ACK = "after_body_commit_before_ack"
    AFTER_SEND_BEFORE_SETTLE = "after_send_before_settle"
    BEFORE_SENDING_COMMIT = "before_sending_commit"
    AFTER_SENDING_COMMIT_BEFORE_DEVICE = "after_sending_commit_before_device"
    AFTER_PUBLISH_BEFORE_PUBACK = "after_publish_before_puback"
    AFTER_PUBACK_BEFORE_ECHO = "after_puback_before_echo"
    AFTER_ANSWER_COMMIT = "after_answer_commit"
    BEFORE_CANCEL_COMMIT = "before_cancel_commit"
    AFTER_RULE_COMMAND_BEFORE_COMMIT = "after_rule_command_before_commit"
    AFTER_RULE_COMMIT_BEFORE_QUEUE = "after_rule_commit_before_queue"
    AFTER_RULE_MESSAGE_BEFORE_DELETE = "after_rule_message_before_delete"
    BEFORE_INIT_TRANSACTIONS = "before_init_transactions"
    AFTER_TAKE_BEFORE_READY = "after_take_before_ready"
    BEFORE_PRODUCE = "before_produce"
    IN_TRANSACTION = "in_transaction"
    AFTER_COMMIT_BEFORE_SETTLING = "after_commit_before_settling"
    BEFORE_LAYOUT = "before_layout"
    AFTER_LAYOUT = "after_layout"
    AFTER_FORMER_SHARD_TAKEN = "after_former_shard_taken"
    AFTER_MOVE = "after_move"
    BEFORE_COMMAND_SENT = "before_command_sent"
    BEFORE_COMMAND_END_COMMIT = "before_command_end_commit"
    BEFORE_COMMAND_SETTLED = "before_command_settled"
    BEFORE_VERDICT_COMMIT = "before_verdict_commit"
    BEFORE_CANCELLING_COMMIT = "before_cancelling_commit"
    BEFORE_CANCEL_SENT = "before_cancel_sent"


def _select(name: str | None) -> CrashPoint | None:
    return CrashPoint(name) if name else None


_selected = _select(os.environ.get(VARIABLE))
_stopped_at = _select(os.environ.get(STOP_VARIABLE))


def crash_point(point: CrashPoint) -> None:
    """Kill this process with SIGKILL, or stop it with SIGTERM, if `point` is selected for that."""
    if point is _selected:
        os.kill(os.getpid(), signal.SIGKILL)
    elif point is _stopped_at:
        os.kill(os.getpid(), signal.SIGTERM)
