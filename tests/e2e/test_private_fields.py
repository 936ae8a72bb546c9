"""Private fields in the records of Kafka, and in the rows that the flow's worker makes of them."""

from msgspec.structs import replace

from flows.record_batches import BATCH, batch_of
from fogline.events.event import Lane
from fogline_cloud.flows.worker.parse import Plan, parse
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.rule_settings import PrivateTable, RuleSettings

CANARY = "canary-4711-ada"


async def test_canaries_of_private_fields_are_in_no_record_of_kafka_and_in_no_row(line, tmp_path):
    key = tmp_path / "private.key"
    key.write_text("0815" * 8)
    key.chmod(0o600)
    table = PrivateTable(name="people", drop=["/name"], hash=["/badge"], key_file=str(key), drop_properties=["user"])
    async with line.bridge():
        settings = replace(line.settings(), rules=RuleSettings(private=[table]))
        outbox = Outbox.open(settings)
        body = b'{"n": 1, "name": "%s", "badge": "%s", "temperature": 21.5}' % ((CANARY.encode(),) * 2)
        async with line.uplink(outbox):
            await line.put(outbox, 1, data=body, properties=f"user={CANARY}&unit=C")
            await line.put(outbox, 2, data=f"name={CANARY}".encode(), content_type="text/plain")
            await line.drained(outbox)
        await outbox.close()
    records = [each for each in line.records(Lane.TELEMETRY) if each.key == b"lamp-1"]
    assert len(records) == 2
    assert CANARY not in repr(records)
    batch = batch_of([(each.headers, each.value) for each in records])
    (rows,) = parse(Plan(tenant=line.tenant, limit_s=60, parsers={}), BATCH, iter([batch]))
    assert CANARY not in repr(rows.to_pylist())
    metrics = {reading["metric"]: reading for row in rows.to_pylist() for reading in row["readings"] or ()}
    assert metrics["temperature"]["value"] == 21.5
    assert len(metrics["badge"]["text"]) == 32
    assert "name" not in metrics
