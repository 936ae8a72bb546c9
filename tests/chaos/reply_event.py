"""The events of lane `reply` that a gateway makes of its journal's verdicts."""

from fogline.events.event import Arrival, Event, Lane
from fogline_lab.events import make_event


def reply_event(sequence: int, arrival: Arrival) -> Event:
    """The event of lane `reply` with this number."""
    return make_event(
        sequence,
        lane=Lane.REPLY,
        device=arrival.device,
        subject=arrival.channel,
        data=arrival.data,
        content_type=arrival.content_type,
        commandid=arrival.outcome.command,
        commandstate=arrival.outcome.state,
        status=arrival.outcome.status,
        correlationid=arrival.outcome.correlation,
    )
