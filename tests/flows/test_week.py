"""K6: a week of backlog, one event a minute from each of two gateways, one of them a day and more behind the other."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from deltalake import DeltaTable

from flows.tenant_flow import Flow
from fogline.events.event import Event, Lane

MINUTES = 7 * 24 * 60
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
STREAMS = {"gw-1": "00000000000000a1", "gw-2": "00000000000000a2"}
OWN_CLOCKS = {0: "2099-01-01T00:00:00Z", 1: "1970-01-01T00:00:00Z"}
"""Some devices have a clock of their own, and it is wrong."""


def minutes(gateway: str, first: int, last: int, **other: Any) -> list[Event]:
    """Return the events that a gateway stored in these minutes."""
    return [
        Event(
            id=f"{gateway}-{minute}",
            device=f"{gateway}-lamp-{minute % 7}",
            type="telemetry",
            subject="air",
            time=OWN_CLOCKS.get(minute % 7),
            recordedtime=f"{BEGIN + timedelta(minutes=minute):%Y-%m-%dT%H:%M:%S}.000000Z",
            content_type="application/json",
            data=b'{"minute": %d}' % minute,
            gateway=gateway,
            stream=STREAMS[gateway],
            sequence=minute + 1,
            timequality="synced",
            dedup="strong",
            adapter="mqtt",
            **{"lane": Lane.TELEMETRY, **other},
        )
        for minute in range(first, last)
    ]


def found(flow: Flow, table: str) -> list[tuple[str, int]]:
    rows = DeltaTable(str(flow.tables / table)).to_pyarrow_table(columns=["gateway", "sequence"]).to_pylist()
    return sorted((row["gateway"], row["sequence"]) for row in rows)


@pytest.mark.slow
@pytest.mark.fault("K6", "T5")
def test_a_week_of_events_is_in_the_tables_although_one_gateway_lags(flow: Flow) -> None:
    """No row is too late: neither a lag of days nor a device clock in 2099 moves a watermark."""
    tenant, half = flow.settings.tenant, MINUTES // 2
    flow.land(minutes("gw-1", 0, MINUTES, tenant=tenant))
    flow.land(minutes("gw-2", 0, 10, tenant=tenant), partition=1)
    first = flow.run()
    flow.land(minutes("gw-2", 10, half, tenant=tenant), partition=1)
    second = flow.run()
    flow.land(minutes("gw-2", half, MINUTES, tenant=tenant), partition=1)
    third = flow.run()

    everything = [(gateway, sequence) for gateway in STREAMS for sequence in range(1, MINUTES + 1)]
    assert found(flow, "events") == everything
    assert found(flow, "readings") == everything
    outcomes = [sum(sum(batch.outcomes.values()) for batch in batches) for batches in (first, second, third)]
    assert outcomes == [MINUTES + 10, half - 10, MINUTES - half]
    print(f"{len(everything)} events of 7 days from 2 gateways in {sum(map(len, (first, second, third)))} batches: all there")
