"""A foreign producer writes garbage beside an honest gateway, with a real Kafka and a real Spark."""

from collections import Counter

import pytest
from confluent_kafka import Producer

from flows.tenant_flow import Flow
from fogline.events.gap import GAP_CONTENT_TYPE
from fogline.gateway.ledger import STATEMENT_CONTENT_TYPE
from fogline_cloud.kafka import records, topics
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.ledger.balance import judge
from fogline_cloud.ledger.sources import gather


def garbage(event) -> list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None, int]]:
    """Key, value, headers and timestamp (0: now) of records that no gateway writes."""
    ours = {**dict(records.record_of(event).headers), "ce_gateway": b"other"}
    return [
        (None, None, None, 0),
        (b"\xff", b"\xff", [("\u00fc", b"\xff")], 0),
        (b"k", b"{}", [("device_id", None), ("ce_stream", None)], 0),
        (b"k", b"5", [("device_id", b"d-9")], 1),
        (b"k", b"5", [("device_id", b"d-9")], -(2**61)),
        (b"k", b"17", [*{**ours, "ce_subject": b"s" * 400_000, "ce_id": b"\xff" * 500_000}.items()], 0),
        (b"k", b"[" * 500_000, [*{**ours, "ce_stream": b"9" * 5000, "ce_sequence": b"9" * 5000}.items()], 0),
        *(
            (b"k", body, [*{**ours, "content-type": kind.encode()}.items()], 0)
            for kind in (GAP_CONTENT_TYPE, STATEMENT_CONTENT_TYPE)
            for body in (b'{"first": "1", "last": [], "reason": 5}', b'{"stream": "\xff"}')
        ),
    ]


@pytest.mark.fault("D7")
def test_honest_events_land_beside_the_garbage_of_a_foreign_producer(flow: Flow, make_event):
    tenant = flow.settings.tenant
    flow.land([make_event(b"1", tenant=tenant)])
    foreign = Producer({**flow.settings.kafka, "compression.type": "lz4"})
    refused: list[object] = []
    sent = garbage(make_event(sequence=1, id="ID-of-garbage", tenant=tenant))
    for key, value, headers, timestamp in sent:
        foreign.produce(
            topics.telemetry(tenant),
            value,
            key,
            partition=0,
            headers=headers,
            timestamp=timestamp,
            on_delivery=lambda error, _: refused.append(error) if error else None,
        )
    assert foreign.flush(60) == 0
    flow.land([make_event(b"2", tenant=tenant)])

    batches = flow.run()

    print(f"Kafka refused {len(refused)} of {len(sent)}: {refused}")
    rows = flow.rows("events")
    assert len(rows) == len(sent) - len(refused) + 2
    assert [(row["sequence"], row["value"]) for row in flow.rows("readings") if row["gateway"] == "gw-1"] == [
        (1, 1.0),
        (2, 2.0),
    ]
    assert sum((Counter(batch.outcomes) for batch in batches), Counter())["dead"] >= 7
    findings = [
        finding for stream in gather(KafkaClients(flow.settings.kafka), flow.settings).streams for finding in judge(stream)
    ]
    assert [finding.text for finding in findings if finding.gateway == "gw-1"] == []
