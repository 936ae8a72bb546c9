"""Replays of stored events."""

from typing import Any

import msgspec

from flows.tenant_flow import Flow
from fogline_cloud.flows.driver.plan import plan_of
from fogline_cloud.flows.replay.selection import Selection
from fogline_cloud.flows.replay.table_replay import Replayed, TableReplay
from fogline_cloud.flows.tables.schema import EventOutcome
from fogline_cloud.settings import CloudSettings

DEAD = Selection(outcomes=frozenset({EventOutcome.DEAD, EventOutcome.SLOW}))


def with_flow(flow: Flow, **changes: Any) -> CloudSettings:
    return msgspec.structs.replace(flow.settings, flow=msgspec.structs.replace(flow.settings.flow, **changes))


def redrive(flow: Flow, selection: Selection = DEAD, *, publish: bool = True, **more: Any) -> Replayed:
    return TableReplay(flow.spark, flow.settings, plan_of(flow.settings), print).run(selection, publish=publish, **more)


def values(flow: Flow) -> list[tuple[int, str, float]]:
    return [(row["sequence"], row["metric"], row["value"]) for row in flow.rows("readings")]


def past(rows: list[dict[str, Any]]) -> Selection:
    return Selection(days=(rows[0]["day"], rows[-1]["day"]))
