"""Encodes arrivals as events of one stream."""

from fogline.events.codec import encode_event
from fogline.events.event import Arrival, Event, Lane, TimeQuality, rfc3339
from fogline_edge.machine.boot import Moment
from fogline_edge.outbox.memory.recognition import NO_IDENTITY, NewEvent
from fogline_edge.outbox.rows.streams import Stream
from fogline_edge.outbox.writer.event_template import EventTemplate, fill_template, template_of

MAX_TEMPLATES = 4096
_NO_RARE_ATTRIBUTES = (None,) * 7


class EventEncoder:
    """Encodes the events of one gateway, with one template per channel: a channel's events differ in few attributes."""

    def __init__(self, tenant: str, gateway: str) -> None:
        self._tenant = tenant
        self._gateway = gateway
        self._templates: dict[tuple[int | str, ...], EventTemplate] = {}

    def encode_plain(self, arrival: Arrival, event_id: str, when: Moment, stream: Stream) -> bytes:
        """Encode an arrival without identity and rare attributes as the stream's newest event."""
        source = (arrival.device, arrival.channel, arrival.content_type, arrival.type, arrival.adapter)
        key = (stream.number, when.synced, *source)
        template = self._templates.get(key)
        if template is None:
            template = template_of(self._event(arrival, "", when, NO_IDENTITY, stream))
            if len(self._templates) >= MAX_TEMPLATES:
                self._templates.clear()
            self._templates[key] = template
        return fill_template(template, event_id, when.text, stream.head, arrival.data)

    def encode(self, arrival: Arrival, event_id: str, when: Moment, verdict: NewEvent, stream: Stream) -> bytes:
        """Encode any arrival as the stream's newest event."""
        return encode_event(self._event(arrival, event_id, when, verdict, stream))

    def _event(self, arrival: Arrival, event_id: str, when: Moment, verdict: NewEvent, stream: Stream) -> Event:
        outcome, time_ns = arrival.outcome, when.time_ns
        return Event(
            id=event_id,
            tenant=self._tenant,
            device=arrival.device,
            type=arrival.type,
            subject=arrival.channel,
            recordedtime=when.text,
            content_type=arrival.content_type,
            data=arrival.data,
            gateway=self._gateway,
            stream=stream.stream,
            sequence=stream.head,
            lane=Lane(stream.lane),
            timequality=TimeQuality.SYNCED if when.synced else TimeQuality.UNSYNCED,
            dedup=verdict.dedup,
            adapter=arrival.adapter,
            time=rfc3339(arrival.time_ns) if arrival.time_ns is not None else None,
            ttd=arrival.ttd_s,
            expirytime=rfc3339(time_ns + arrival.expiry_s * 1_000_000_000) if arrival.expiry_s is not None else None,
            properties=arrival.properties,
            commandid=outcome.command if outcome else None,
            commandstate=outcome.state if outcome else None,
            correlationid=outcome.correlation if outcome else None,
            status=outcome.status if outcome else None,
            dataref=arrival.dataref,
        )


def has_rare_attributes(arrival: Arrival) -> bool:
    """Return True if a template cannot encode this arrival."""
    rare = (
        arrival.time_ns,
        arrival.outcome,
        arrival.properties,
        arrival.ttd_s,
        arrival.expiry_s,
        arrival.report,
        arrival.dataref,
    )
    return rare != _NO_RARE_ATTRIBUTES
