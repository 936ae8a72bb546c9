"""Batches of replies on lane `reply`, and the records that landed of them."""

from cloud.shard.shard_bench import Bench
from fogline.events.codec import Range, encode_batch, encode_event
from fogline.events.event import Lane
from fogline.events.gap import GAP_CONTENT_TYPE
from fogline.message import Message
from fogline_cloud.commands.command_id import CommandIds
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.committed_records import CommittedRecord, read_committed
from fogline_lab.events import BEACON, make_event

IDS = CommandIds(b"k" * 32)
STREAM = "00112233445566bb"


def replies(
    bench: Bench,
    *changes: dict[str, object],
    gateway: str = "gw-1",
    stream: str = STREAM,
) -> tuple[Range, Message]:
    """A batch of replies on lane `reply`, each with some attributes changed."""
    events = []
    for number, change in enumerate(changes, start=1):
        attributes = {
            "tenant": bench.tenant,
            "gateway": gateway,
            "stream": stream,
            "lane": Lane.REPLY,
            "type": "reply",
            "subject": "command/switch",
            "content_type": "text/plain",
            "data": b"done",
            "commandid": IDS.new(),
            "commandstate": "SUCCEEDED",
            "status": 200,
            "correlationid": "string:1",
        }
        events.append(make_event(number, **{**attributes, **change}))
    span = Range(gateway, stream, Lane.REPLY, 1, len(events), bytes(16))
    return span, encode_batch(span, [encode_event(each) for each in events], BEACON)


def landed(bench: Bench) -> list[CommittedRecord]:
    """Every committed record of the reply lane."""
    return list(read_committed(bench.clients, {(topics.command_response(bench.tenant), 0): None}))


def is_gap(stored: CommittedRecord) -> bool:
    return dict(stored.headers)["content-type"] == GAP_CONTENT_TYPE.encode()
