"""The page of the audit: the decisions of real bridges, a filter, CSV, and a chain that somebody has changed."""

import asyncio
import csv
import io
import re

from confluent_kafka import Producer

from e2e.console_client import log_in, visitor
from e2e.http_api import COMMANDS, SWITCH, served
from fogline_cloud.audit.record import AuditRecord, encode_audit
from fogline_cloud.console.pages import audit_page
from fogline_cloud.kafka import topics
from fogline_lab.device.command_device import CommandDevice


async def test_audit_shows_who_did_what_and_that_the_chain_holds(line):
    async with served(line) as (found, downlink, *_), visitor(found) as client:
        downlink.reachable("lamp-1", CommandDevice(downlink))
        sent = await found.http.post(COMMANDS, json=SWITCH, params={"wait": "30s"})
        await log_in(client, "alice")
        page = (await client.get("/console/audit", params={"about": sent.json()["id"]})).text
        assert "SUCCEEDED" in page
        assert "none was changed" in page
        assert f'href="/console/commands/{sent.json()["id"]}"' in page
        everything = await client.get("/console/audit.csv")
        rows = list(csv.DictReader(io.StringIO(everything.text)))
        assert "SUCCEEDED" in {each["decision"] for each in rows}
        times = [each["time"] for each in rows]
        assert times == sorted(times, reverse=True)
        assert "No decision matches" in (await client.get("/console/audit", params={"about": "nothing-like-it"})).text
        assert (await client.get("/console/audit", params={"depth": "all"})).status_code == 400


async def test_audit_names_a_record_that_was_put_into_the_chain(line):
    async with served(line) as (found, *_), visitor(found) as client:
        await log_in(client, "alice")
        assert 'role="alert"' not in (await client.get("/console/audit")).text
        await asyncio.to_thread(produce, line)
        page = (await client.get("/console/audit")).text
        assert re.search(r'role="alert".*chain.*record 99 follows record 50', page, re.DOTALL)
        assert "'=cmd()" in (await client.get("/console/audit.csv")).text, "no spreadsheet computes it"


async def test_only_the_newest_decisions_of_each_shard_are_looked_at(line, monkeypatch):
    monkeypatch.setattr(audit_page, "DEPTHS", {"": 2, "more": 200})
    async with served(line) as (found, downlink, *_), visitor(found) as client:
        downlink.reachable("lamp-1", CommandDevice(downlink))
        for _ in range(4):
            await found.http.post(COMMANDS, json=SWITCH, params={"wait": "30s"})
        await log_in(client, "alice")
        counts = []
        for depth in ("", "more"):
            page = (await client.get("/console/audit", params={"depth": depth})).text
            assert 'role="alert"' not in page
            counts.append(int(re.search(r"([\d,]+) decisions were looked at", page)[1]))
        assert 0 < counts[0] <= 4 < counts[1]


def produce(line) -> None:
    """Write records that no bridge has decided."""
    producer = Producer({"bootstrap.servers": line.cloud.kafka["bootstrap.servers"]})
    for number in (50, 99):
        record = AuditRecord(time_ms=number, who="=cmd()", decision="CONNECTED", number=number, previous="00")
        producer.produce(topics.audit(line.tenant), encode_audit(record), partition=0)
    assert producer.flush(60) == 0
