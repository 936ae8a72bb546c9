"""Writes the bridge's decisions about peers to the audit, through a shard that it owns. All methods run on the loop."""

import logging
import time

from fogline.process.kernel_clock import wall_clock_ms
from fogline_cloud.access.principal import Principal
from fogline_cloud.audit.record import AuditRecord
from fogline_cloud.audit.throttle import AuditThrottle
from fogline_cloud.bridge.group.shard_table import ShardTable
from fogline_cloud.shard.work.command_changes import AuditNote

MAX_TEXT = 512

_log = logging.getLogger("fogline.audit")


class AuditTrail:
    """The audit of one bridge. A bridge that owns no shard at the moment only logs the decision."""

    def __init__(self, shards: ShardTable) -> None:
        self._shards = shards
        self._throttle = AuditThrottle()

    def note(self, principal: Principal | None, decision: str, why: str = "", *, device: str = "", name: str = "") -> None:
        """Write a decision about a peer, or about one that has not proven its name (None)."""
        record = AuditRecord(
            time_ms=wall_clock_ms(),
            who="" if principal is None else str(principal)[:MAX_TEXT],
            decision=decision,
            why=why[:MAX_TEXT],
            device=device,
            name=name[:MAX_TEXT],
        )
        for each in self._throttle.select([record], time.monotonic()):
            own = self._shards.ready(self._shards.number_of(principal.name)) if principal is not None else None
            shard = own or next((found for found in self._shards if found.ready), None)
            if shard is None:
                _log.warning("not in the audit, because no shard is here at present: %s", each)
            else:
                shard.submit(AuditNote(each))
