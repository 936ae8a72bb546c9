"""`fogline device history`: the events of a device that rules of its gateway kept back, fetched from there in pages."""

import argparse
import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from fogline.commands.command import CommandState, Status
from fogline.commands.history import COLUMNS, HISTORY, HistoryPage, HistoryQuery, HistoryState, read_page, row_of
from fogline.errors import Misconfigured, Poison
from fogline.process.console.command_line import INTERRUPTED, add_limit
from fogline.process.console.listing import show_rows
from fogline.process.console.terminal import show, show_progress, tell
from fogline.process.console.times import moment
from fogline_cloud.cli.common import add_command
from fogline_cloud.cli.operators.operator_link import bridge_of, connected, refused
from fogline_cloud.commands.client.operator import Ask
from fogline_cloud.commands.client.verdict import CommandVerdict
from fogline_cloud.settings import CloudSettings, load

PAGE_S = 60.0
"""Time to live of the command for one page."""
_SLACK_S = 20.0
_SOON_MS = 1000


class DeviceHistory(NamedTuple):
    """Kept events of a device, the oldest first. `more`: there are more in the span. `state`: of the whole history."""

    events: list[dict[str, Any]]
    more: bool
    state: HistoryState


class HistoryUnread(Exception):
    """The message says why there is no history, or no more of it."""


def add_history(commands: "argparse._SubParsersAction[Any]", raw: dict[str, Any]) -> argparse.ArgumentParser:
    """Add the subcommand, without the arguments that all commands for one device have."""
    about = "print events that rules of the device's gateway kept back, and that keep_days keeps there"
    history = add_command(commands, "history", run_history, about, **raw)
    history.add_argument("--since", metavar="TIME", help="from then on: 2h, or 2026-11-01T12:00:00Z (default: all)")
    history.add_argument("--until", metavar="TIME", help="before then (default: now)")
    add_limit(history, 1000, "the oldest")
    return history


def run_history(arguments: argparse.Namespace) -> int:
    """Print the kept events of a device. Return 1 if its gateway cannot be asked, or keeps none."""
    settings, now = load(arguments.config, kafka=False), datetime.now(UTC)
    since_ms = 0 if arguments.since is None else _ms(moment("--since", arguments.since, now))
    until_ms = int(time.time() * 1000) + _SOON_MS if arguments.until is None else _ms(moment("--until", arguments.until, now))
    query = HistoryQuery(since_ms, max(0, until_ms))
    try:
        found = asyncio.run(_fetch(arguments, settings, query))
    except HistoryUnread as error:
        show_progress("")
        tell(f"history of {arguments.device}: {error}")
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    show_progress("")
    if arguments.json:
        state = msgspec.to_builtins(found.state)
        show(json.dumps({"events": found.events, "more": found.more, "history": state}))
        return 0
    rows = [row_of(each) for each in found.events]
    show_rows(COLUMNS, rows, f"no event of {arguments.device} was kept in this time")
    if found.more:
        tell(f"there are more: add --since {rows[-1][0]}, or a higher --limit")
    if found.state.forgotten:
        tell(f"the gateway's history was full: it has deleted {found.state.forgotten:,} events early (rules.history_max_bytes)")
    return 0


async def _fetch(arguments: argparse.Namespace, settings: CloudSettings, query: HistoryQuery) -> DeviceHistory:
    async with connected(arguments, settings) as operator:

        async def ask(request: Ask) -> CommandVerdict:
            try:
                async with asyncio.timeout(PAGE_S + _SLACK_S):
                    return await operator.request(request)
            except TimeoutError:
                raise HistoryUnread(f"no reply from the bridge: {operator.why}") from None
            except Misconfigured as error:
                raise refused(*bridge_of(arguments, settings), str(error)) from None

        return await fetch_history(ask, arguments.device, query, arguments.limit)


async def fetch_history(
    ask: Callable[[Ask], Awaitable[CommandVerdict]], device: str, query: HistoryQuery, limit: int
) -> DeviceHistory:
    """Return up to `limit` kept events of a device, in as many pages as that takes. `ask` sends a command.

    Raises `HistoryUnread`, and what `ask` raises.
    """
    events: list[msgspec.Raw] = []
    while True:
        data = msgspec.json.encode(query)
        request = Ask(device, HISTORY, data, "application/json", ttl_s=PAGE_S, durable=False, idempotent=True)
        page = _page_of(await ask(request), query)
        events += page.events
        show_progress(f"history of {device}: {len(events):,} events")
        if page.next is None or len(events) >= limit:
            break
        query = msgspec.structs.replace(query, begin=page.next)
    more = page.next is not None or len(events) > limit
    return DeviceHistory([json.loads(bytes(each)) for each in events[:limit]], more, page.history)


def _page_of(verdict: CommandVerdict, query: HistoryQuery) -> HistoryPage:
    if verdict.status == Status.OFFLINE:
        raise HistoryUnread("its gateway is not connected, and only the gateway has the history. Try again when it is")
    if verdict.state is not CommandState.SUCCEEDED:
        raise HistoryUnread(verdict.why or f"the gateway has not answered in {PAGE_S:.0f} s: {verdict.state}")
    try:
        page = read_page(verdict.data)
    except Poison as error:
        raise HistoryUnread(str(error)) from None
    if page.next is not None and (not page.events or page.next <= (query.begin or (-1, 0))):
        raise HistoryUnread("the gateway's pages do not go on")
    return page


def _ms(found: datetime) -> int:
    return max(0, int(found.timestamp() * 1000))
