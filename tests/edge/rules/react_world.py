"""Events and rules for tests of rules that act."""

import msgspec

from fogline.events.event import Arrival, Lane
from fogline_edge.rule_settings import ActionTable, LastTable, ReactTable, RuleSettings

HOT = "event.value.t > 26.0"
FAN_ON = ActionTable(command="switch", device="fan-1", json={"on": True})


def rule(name="hot", when=HOT, then=(FAN_ON,), last=None, **keys) -> ReactTable:
    return ReactTable(
        name=name,
        when=when,
        then=list(then),
        last={each: LastTable(device=device) if isinstance(device, str) else device for each, device in (last or {}).items()},
        **keys,
    )


def rules(*tables: ReactTable) -> RuleSettings:
    return RuleSettings(react=list(tables))


def event(device="press-1", value=None, channel="hall", **keys) -> Arrival:
    fields = {"lane": Lane.TELEMETRY, "content_type": "application/json", "adapter": "mqtt", "data": msgspec.json.encode(value)}
    return Arrival(device=device, channel=channel, **(fields | keys))
