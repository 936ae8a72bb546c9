"""The list of metrics names every counter, and gateway and bridge serve their part of it."""

import pytest
from msgspec.structs import replace

from fogline.commands.signature import TrustedKeys
from fogline.events.event import Receipt
from fogline.process.monitoring.metrics import METRICS, Sample, samples_of
from fogline_cloud.bridge.bridge import Bridge
from fogline_cloud.settings import BridgeSettings, CloudSettings
from fogline_cloud.shard.owned_shard import ShardCounters
from fogline_edge.adapters.ble.counters import BleCounters, ScanMeter, Steps
from fogline_edge.adapters.coap.counters import CoapCounters
from fogline_edge.adapters.coap.dtls.dtls_counters import DtlsCounters
from fogline_edge.adapters.mqtt.counters import MqttCounters
from fogline_edge.adapters.mqtt_client.commands import BrokerCommandCounters
from fogline_edge.adapters.mqtt_client.inflow import MqttClientCounters
from fogline_edge.downlink.downlink import Downlink
from fogline_edge.downlink.runner import DownlinkCounters
from fogline_edge.operate.metrics import AdapterCounters, read_gateway
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.rule_settings import ReduceTable, RuleSettings
from fogline_edge.uplink.uplink import Uplink
from fogline_lab.events import make_arrival
from fogline_lab.gateway.outbox_use import put
from fogline_lab.line.line import Line
from fogline_lab.waiting import until_not
from shared.process.metrics_client import get

COUNTERS = {
    "mqtt": [MqttCounters],
    "coap": [CoapCounters],
    "coap_dtls": [DtlsCounters],
    "ble": [BleCounters, ScanMeter],
    "ble_supervisor": [Steps],
    "mqtt_client": [MqttClientCounters],
    "mqtt_client_commands": [BrokerCommandCounters],
    "downlink": [DownlinkCounters],
    "shard": [ShardCounters],
}


def listed(prefix: str) -> set[str]:
    longer = [each for each in COUNTERS if each.startswith(f"{prefix}_")]
    mine = {name for name in METRICS if name.startswith(f"fogline_{prefix}_")}
    return {name for name in mine if not any(name.startswith(f"fogline_{each}_") for each in longer)}


@pytest.mark.parametrize("prefix", COUNTERS)
def test_every_counter_is_listed_and_every_listed_metric_is_counted(prefix):
    counters = [each() for each in COUNTERS[prefix]]
    for value in (value for each in counters for value in vars_of(each)):
        if isinstance(value, dict):
            value.setdefault("reason", 1)
    counted = {sample.name for each in counters for sample in samples_of(prefix, each)}
    assert counted <= METRICS.keys()
    assert listed(prefix) - counted <= {"fogline_shard_ready"}, "listed, but never counted"


def vars_of(counters):
    return [getattr(counters, name) for name in counters.__dataclass_fields__]


async def test_a_bridge_serves_its_metrics_and_its_health(line: Line):
    bridge = Bridge(
        CloudSettings(
            tenant=line.tenant,
            kafka=line.cloud.kafka,
            shards=2,
            bridge=BridgeSettings(listen="127.0.0.1:0", metrics="127.0.0.1:0"),
        )
    )
    _, line.port = await bridge.start()
    try:
        await until_not(lambda: not_ready(bridge), "the bridge owns no shard")
        async with line.gateway() as outbox:
            await line.put(outbox, 1, 2, 3)
            await line.drained(outbox)
            _, body = await get(bridge.metrics_address)
            assert (await get(bridge.metrics_address, "/healthz"))[1] == "ok\n"
    finally:
        await bridge.close()
    values = dict(row.rsplit(" ", 1) for row in body.splitlines() if not row.startswith("#"))
    assert float(values["fogline_bridge_gateways"]) == 1
    landed = [float(value) for name, value in values.items() if name.startswith("fogline_shard_landed_total")]
    assert sum(landed) >= 3
    commits = [float(value) for name, value in values.items() if name.startswith("fogline_shard_commit_seconds_count")]
    assert sum(commits) >= 1
    missing = {name for name in METRICS if name.startswith(("fogline_bridge_", "fogline_shard_"))} - names(body)
    missing -= {name for name in METRICS if name.startswith("fogline_bridge_via_")}  # of a bridge with `[[bridge.via]]`
    assert missing <= {"fogline_bridge_silent_devices"}, "that one has samples of types only that have devices"


async def not_ready(bridge: Bridge) -> bool:
    return not bridge.shards.all_ready


async def test_a_gateway_reads_the_numbers_of_its_status(line: Line):
    rules = RuleSettings(reduce=[ReduceTable(name="same", on_change=True, keep_days=2)])
    outbox = Outbox.open(replace(line.settings(), rules=rules))
    uplink, downlink = Uplink(outbox, line.settings().uplink, lambda *_: None), Downlink(outbox, TrustedKeys())
    try:
        await line.put(outbox, 1, 2, 3)
        assert await put(outbox, make_arrival(3)) is Receipt.FILTERED
        samples = read(line, uplink, downlink)
        assert samples["fogline_outbox_stored_total", ("telemetry",)].value == 3
        assert samples["fogline_outbox_backlog", ("telemetry",)].value == 3
        assert 0 < samples["fogline_outbox_oldest_seconds", ("telemetry",)].value < 3600
        assert samples["fogline_uplink_connected", ()].value == 0
        async with line.bridge(), line.uplink(outbox) as uplink:
            await line.drained(outbox)
            samples = read(line, uplink, downlink)
            assert samples["fogline_outbox_backlog", ("telemetry",)].value == 0
            assert samples["fogline_history_events", ()].value == 1
            assert samples["fogline_history_forgotten_total", ()].value == 0
            assert samples["fogline_uplink_connected", ()].value == 1
            assert sum(samples["fogline_uplink_settlement_seconds", ()].value.counts) >= 1
    finally:
        await outbox.close()
    parts = ("fogline_outbox_", "fogline_history_", "fogline_uplink_", "fogline_downlink_")
    unread = {name for name in METRICS if name.startswith(parts)}
    assert unread - {name for name, _ in samples} == set()


def read(line: Line, uplink: Uplink, downlink: Downlink) -> dict[tuple[str, tuple[str, ...]], Sample]:
    found = read_gateway(line.folder / "gw-1", uplink, downlink, [AdapterCounters("mqtt", MqttCounters())])
    return {(each.name, each.labels): each for each in found}


def names(body: str) -> set[str]:
    """The metrics of an exposition, by their `# TYPE` lines."""
    found = {line.split()[2]: line.split()[3] for line in body.splitlines() if line.startswith("# TYPE")}
    return {f"{name}_total" if kind == "counter" and not name.endswith("_total") else name for name, kind in found.items()}
