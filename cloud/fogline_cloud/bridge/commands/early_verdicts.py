"""Verdicts of gateways that operators get before Kafka has them.

A gateway sends a reply after its journal has committed the verdict, and keeps it until Kafka has it. So an operator need not
wait for the transaction of a shard, or for the one before it.
"""

import contextlib
from collections.abc import Iterable

from fogline.errors import Poison
from fogline.events.codec import Range, read_batch
from fogline.events.event import Event
from fogline.message import Message
from fogline.process.crash_points import CrashPoint, crash_point
from fogline_cloud.bridge.commands.command_table import CommandTable
from fogline_cloud.commands.command_life import CommandLife
from fogline_cloud.commands.reply_lane import check_replies
from fogline_cloud.shard.foreign_devices import MaySpeakFor
from fogline_cloud.shard.shard_writer import isolated


class EarlyVerdicts:
    """Used on the loop. Handles only replies whose verdict the shard cannot change."""

    def __init__(self, table: CommandTable, tenant: str, may_speak_for: MaySpeakFor) -> None:
        self._table = table
        self._tenant = tenant
        self._may_speak_for = may_speak_for

    def received(self, span: Range, message: Message) -> None:
        """Take the verdicts out of a batch of lane `reply`. Its shard gets it too, and refuses it if it is malformed."""
        with contextlib.suppress(Poison), isolated(f"replies of gateway {span.gateway}"):
            self.take(read_batch(span, message).events())

    def take(self, replies: Iterable[Event]) -> None:
        """Take the verdicts of commands that only their gateways can end now."""
        clear = [
            each
            for each in replies
            if each.commandid is not None
            and (command := self._table.open.get(each.commandid)) is not None
            and command.life.awaits_gateway
            and self._may_speak_for(each.gateway, each.device)
        ]
        known, now_ms = self._table.registry.get, self._table.now_ms()
        checked = check_replies(clear, known, issued=lambda _: False, tenant=self._tenant, now_ms=now_ms)
        for record in checked.records:
            self._table.on(record, CommandLife.learned, record)
            crash_point(CrashPoint.BEFORE_VERDICT_COMMIT)
