"""All rules of the settings, in the order of their steps."""

from fogline.events.event import Arrival
from fogline_edge.rule_settings import RuleSettings


class EventRules:
    """The rules of one gateway. Used on the writer's thread."""

    def __init__(self, settings: RuleSettings) -> None:
        self._settings = settings

    def prepare(self, arrival: Arrival) -> Arrival:
        """Return the arrival as it is recognised and stored."""
        return arrival


def rules_of(settings: RuleSettings) -> EventRules | None:
    """Return the rules of the settings; None if there are none. Raises `Misconfigured`."""
    return EventRules(settings) if settings.all else None
