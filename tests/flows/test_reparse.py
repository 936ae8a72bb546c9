"""Rows that are parsed again: some with their raw record, some without, because Kafka or table `raw` has it no more."""

import pyarrow as pa
import pytest

from flows.record_batches import BATCH, of_events
from fogline_cloud.flows.replay.reparse import reparse
from fogline_cloud.flows.worker.parse import Plan, parse


def plan(parser: str) -> Plan:
    return Plan(tenant="t", limit_s=60, parsers={"application/json": parser})


@pytest.mark.parametrize("recorded", [(), (0,), (1,), (0, 1)])
def test_row_without_a_raw_record_is_read_from_the_body_that_it_keeps(make_event, recorded):
    given = of_events([make_event(b'{"air": 1}', id="a"), make_event(b'{"air": 2}', id="b")])
    (misread,) = parse(plan("raw-number"), BATCH, [given])
    rows = pa.Table.from_batches([misread])
    for name in ("value", "headers"):
        kept = [each if row in recorded else None for row, each in enumerate(given.column(name).to_pylist())]
        rows = rows.append_column(name, pa.array(kept, given.schema.field(name).type))
    (found,) = reparse(plan("json"), None, rows.to_batches())
    assert [(row["id"], row["was"], row["outcome"], row["readings"][0]["value"]) for row in found.to_pylist()] == [
        ("a", "skip", "ok", 1.0),
        ("b", "skip", "ok", 2.0),
    ]
