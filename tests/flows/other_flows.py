"""Flows beside the first one of a tenant, and their events."""

from typing import Any

import msgspec

from flows.tenant_flow import Flow
from fogline.events.event import Lane

OTHERS = [lane for lane in Lane if lane is not Lane.ALARM]


def flow_of(flow: Flow, name: str, lanes: list[Lane]) -> Flow:
    """Another flow on the same tables, with a checkpoint and a Spark session of its own."""
    changed = msgspec.structs.replace(flow.settings.flow, name=name, lanes=lanes, checkpoint=f"{flow.checkpoint}-{name}")
    return type(flow)(flow.spark.newSession(), msgspec.structs.replace(flow.settings, flow=changed))


def alarm(make_event: Any, name: str, **given: Any) -> Any:
    return make_event(id=name, lane=Lane.ALARM, stream="00000000000000bb", sequence=int(name[1:]), type="alarm", **given)


def other_flow(flow: Flow, **settings: str) -> Flow:
    """A second deployment: the same settings but for these, in a Spark session of its own."""
    changed = msgspec.structs.replace(flow.settings.flow, checkpoint=f"{flow.checkpoint}-2", **settings)
    return type(flow)(flow.spark.newSession(), msgspec.structs.replace(flow.settings, flow=changed))
