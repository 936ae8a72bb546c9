"""The metrics of the fleet: one set for each gateway, and bounded whatever gateways say."""

from datetime import UTC, datetime

import msgspec
import pytest

from fogline.gateway.gateway_statistics import MachineNumbers
from fogline.process.monitoring.metrics import METRICS
from fogline_cloud.bridge.gateways import fleet as fleet_module
from fogline_cloud.bridge.gateways.fleet import FleetStatistics
from shared.example_statistics import STATISTICS

DAY_S = 86_400
NOW_S = 1_700_000_100.0


class Time:
    def __init__(self) -> None:
        self.now_s = NOW_S

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def now():
    return Time()


@pytest.fixture
def fleet(now):
    return FleetStatistics(now)


def read(fleet: FleetStatistics, *connected: str, shards=(0, 1)) -> dict[tuple[str, ...], float]:
    found = {(each.name.removeprefix("fogline_gateway_"), *each.labels): each.value for each in fleet.read(connected, shards)}
    assert {f"fogline_gateway_{name}" for name, *_ in found} <= METRICS.keys()
    return found


def test_each_gateway_shows_its_last_statistics(fleet, now):
    fleet.reported("gw-1", 0, STATISTICS)
    fleet.certified("gw-1", datetime.fromtimestamp(NOW_S + DAY_S, UTC))
    now.now_s += 60
    found = read(fleet, "gw-1")
    assert found["connected", "gw-1"] == 1
    assert found["last_seen_timestamp_seconds", "gw-1"] == NOW_S
    assert found["certificate_end_timestamp_seconds", "gw-1"] == NOW_S + DAY_S
    assert found["clock_ahead_seconds", "gw-1"] == -100
    assert found["outbox_events", "gw-1", "telemetry"] == 7
    assert found["outbox_events", "gw-1", "alarm"] == 0
    assert found["commands_total", "gw-1", "SUCCEEDED"] == 2
    assert found["temperature_celsius", "gw-1"] == 51.2
    assert found["version_info", "gw-1", "0.1.0"] == 1
    assert ("throttled", "gw-1") not in found, "the kernel did not tell"


def test_every_listed_metric_is_read_from_statistics_that_have_everything(fleet):
    machine = dict.fromkeys(MachineNumbers.__struct_fields__, 1) | {"undervoltage": True, "throttled": False}
    fleet.reported("gw-1", 0, msgspec.structs.replace(STATISTICS, machine=MachineNumbers(**machine)))
    fleet.certified("gw-1", datetime.now(UTC))
    listed = {name.removeprefix("fogline_gateway_") for name in METRICS if name.startswith("fogline_gateway_")}
    assert {name for name, *_ in read(fleet)} == listed


def test_a_gateway_without_statistics_still_has_a_last_sign_of_life(fleet):
    fleet.seen("gw-1", 0)
    assert {name for name, *_ in read(fleet)} == {"connected", "last_seen_timestamp_seconds", "statistics_total"}


def test_after_a_start_the_gateways_come_from_kafka_and_do_not_go_back_in_time(fleet):
    fleet.seen("gw-1", 0)
    fleet.recall(0, {"gw-1": 1000, "gw-2": int(NOW_S - 3600) * 1000, "gw-3": 0})
    found = read(fleet)
    assert found["last_seen_timestamp_seconds", "gw-1"] == NOW_S
    assert found["last_seen_timestamp_seconds", "gw-2"] == int(NOW_S - 3600)
    assert found["connected", "gw-2"] == 0
    assert ("connected", "gw-3") not in found, "it has been gone for 30 days"


def test_gateways_of_lost_shards_and_those_gone_for_30_days_leave(fleet, now):
    fleet.seen("gw-1", 0)
    fleet.seen("gw-2", 1)
    assert ("connected", "gw-2") not in read(fleet, shards=(0,))
    now.now_s += 31 * DAY_S
    assert ("connected", "gw-1") in read(fleet, "gw-1"), "it is connected"
    assert not read(fleet)


def test_a_gateway_that_makes_up_versions_has_one_series_and_names_are_bounded(fleet, now, monkeypatch):
    monkeypatch.setattr(fleet_module, "MAX_GATEWAYS", 3)
    for number in range(50):
        now.now_s += 1
        fleet.reported("gw-1", 0, msgspec.structs.replace(STATISTICS, version=f"0.{number}"))
        fleet.seen(f"made-up-{number}", 0)
    found = read(fleet)
    assert {labels[0] for _, *labels in found} == {"gw-1", "made-up-49", "made-up-48"}
    assert [labels for name, *labels in found if name == "version_info"] == [["gw-1", "0.49"]]
