"""Crash points at which tests kill a bridge, and a gateway that commands a device behind a broker."""

from fogline.process.crash_points import CrashPoint

BRIDGE_POINTS = (
    CrashPoint.BEFORE_INIT_TRANSACTIONS,
    CrashPoint.AFTER_TAKE_BEFORE_READY,
    CrashPoint.BEFORE_PRODUCE,
    CrashPoint.IN_TRANSACTION,
    CrashPoint.AFTER_COMMIT_BEFORE_SETTLING,
)
BROKER_POINTS = (CrashPoint.AFTER_PUBLISH_BEFORE_PUBACK, CrashPoint.AFTER_PUBACK_BEFORE_ECHO)
CANCEL_POINTS = (CrashPoint.BEFORE_CANCELLING_COMMIT, CrashPoint.BEFORE_CANCEL_SENT)
DIRECT_POINTS = (CrashPoint.BEFORE_COMMAND_SENT, CrashPoint.BEFORE_COMMAND_END_COMMIT, CrashPoint.BEFORE_COMMAND_SETTLED)
WITH_DEVICE = (CrashPoint.BEFORE_COMMAND_SENT, CrashPoint.BEFORE_VERDICT_COMMIT)
