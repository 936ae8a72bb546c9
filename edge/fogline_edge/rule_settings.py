"""The tables of `[rules]`: what the gateway decides about events before it stores them."""

from typing import Annotated, Literal

from msgspec import Meta

from fogline_edge.settings_types import Identifier, StrictTable


class RuleTable(StrictTable, frozen=True, kw_only=True):
    """What all rules have: a name, and the events that the rule applies to. An event must fulfil every key that is given."""

    name: Identifier
    """Name of the rule, unique in the file. Metrics, the ledger and `fogline-edge explain` show it."""
    device: Annotated[str, Meta(min_length=1)] = "*"
    """Shell pattern of devices, such as `press-*`."""
    channel: Annotated[str, Meta(min_length=1)] = "#"
    """MQTT topic, CoAP or HTTP path, or characteristic, with MQTT's wildcards `+` and `#`."""
    type: str | None = None
    """CloudEvents type of the events, such as `telemetry`."""
    adapter: Literal["ble", "coap", "http", "mqtt", "mqtt-client"] | None = None
    """Protocol of the device."""


class RuleSettings(StrictTable, frozen=True, kw_only=True):
    """Rules for events. Without any, the gateway stores each event as it comes."""

    @property
    def all(self) -> tuple[RuleTable, ...]:
        """All rules, in the order of their steps."""
        return ()


def names_twice(settings: RuleSettings) -> str | None:
    """Return a name that two rules have, or None."""
    seen: set[str] = set()
    for each in settings.all:
        if each.name in seen:
            return each.name
        seen.add(each.name)
    return None
