"""The page of the audit: who did what, the newest first, with a filter, as CSV, and whether the chain holds."""

from functools import partial
from typing import Final
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from fogline.address import shown
from fogline.errors import Poison
from fogline.events.event import rfc3339
from fogline_cloud.api import requests
from fogline_cloud.api.context import ApiContext
from fogline_cloud.api.problems import Problem
from fogline_cloud.audit.chain import ChainCheck
from fogline_cloud.audit.record import AuditRecord, decode_audit
from fogline_cloud.console.csv_lines import csv_response
from fogline_cloud.console.guard import Viewer
from fogline_cloud.console.one_thread import OneThread, within_limit
from fogline_cloud.console.rendering import ROOT, Rendering
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.kafka.committed_records import read_committed
from fogline_cloud.settings import CloudSettings

SHOWN: Final = 200
"""Decisions on the page."""
DEPTHS: Final = {"": 5_000, "more": 50_000, "most": 500_000}
"""Records that are looked at, the newest of all shards together: Kafka keeps the audit for long."""
MAX_KEPT: Final = 20_000
"""Decisions that match, for the CSV: the newest."""
MAX_CHARS: Final = 200
COLUMNS: Final = ("time", "decision", "who", "device", "gateway", "command", "name", "status", "why")


class AuditExtract(msgspec.Struct, frozen=True):
    """The decisions that match, the newest first; how many were looked at; and what is wrong with their chain."""

    records: list[AuditRecord]
    looked_at: int
    problems: list[str]


class AuditPage:
    """The handlers."""

    def __init__(self, settings: CloudSettings, context: ApiContext, rendering: Rendering, thread: OneThread) -> None:
        self._settings = settings
        self._clients = KafkaClients(settings.kafka)
        self._context = context
        self._rendering = rendering
        self._thread = thread

    async def show(self, request: Request, viewer: Viewer) -> Response:
        """Show the newest decisions that match."""
        about, depth = self._asked(request, viewer)
        found = await self._thread.ask(partial(self._read, about, DEPTHS[depth]))
        return self._rendering.page(
            "audit.html",
            request,
            viewer,
            found=found,
            records=found.records[:SHOWN],
            about=about,
            depth=depth,
            depths=DEPTHS,
            csv=f"{ROOT}/audit.csv?{urlencode({'about': about, 'depth': depth})}",
        )

    async def csv(self, request: Request, viewer: Viewer) -> Response:
        """Send all decisions that match as CSV."""
        about, depth = self._asked(request, viewer)
        found = await self._thread.ask(partial(self._read, about, DEPTHS[depth]))
        return csv_response("audit.csv", COLUMNS, map(_row, found.records))

    def _asked(self, request: Request, viewer: Viewer) -> tuple[str, str]:
        if not self._context.policy.oversees(viewer.principal):
            raise Problem(403, "you may not see the audit: that is for an [[admin]] of access.toml")
        requests.allow(request, "about", "depth")
        about, depth = request.query_params.get("about", "").strip()[:MAX_CHARS], request.query_params.get("depth", "")
        if depth not in DEPTHS:
            raise Problem(400, f"depth={shown(depth)}: expected one of {', '.join(filter(None, DEPTHS))}")
        return about, depth

    def _read(self, about: str, depth: int) -> AuditExtract:
        """Read the newest records of each shard. On the thread."""
        topic, each = topics.audit(self._settings.tenant), depth // self._settings.shards + 1
        partitions = [(topic, shard) for shard in range(self._settings.shards)]
        bounds = self._clients.bounds(partitions, committed=True)
        starts: dict[tuple[str, int], int | None] = {name: max(low, high - each) for name, (low, high) in bounds.items()}
        checks = [ChainCheck(f"{topic}[{shard}]") for shard in range(self._settings.shards)]
        found: list[AuditRecord] = []
        count = 0
        for stored in within_limit(read_committed(self._clients, starts, stable=True)):
            if not stored.value:
                continue
            count += 1
            checks[stored.partition].add(stored.offset, stored.value)
            try:
                record = decode_audit(stored.value)
            except Poison:
                continue  # the check names it
            if not about or about in msgspec.json.encode(record).decode():
                found.append(record)
            if len(found) > 2 * MAX_KEPT:
                found = sorted(found, key=_time)[-MAX_KEPT:]
        newest = sorted(found, key=_time, reverse=True)[:MAX_KEPT]
        return AuditExtract(newest, count, [problem for check in checks for problem in check.problems])


def _time(record: AuditRecord) -> int:
    return record.time_ms


def _row(record: AuditRecord) -> list[object]:
    facts = {**msgspec.structs.asdict(record), "time": rfc3339(record.time_ms * 1_000_000)}
    return [facts[name] for name in COLUMNS]
