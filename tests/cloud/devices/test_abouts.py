"""What a program at a gateway says of its devices comes into the registry, and is no sign of the devices themselves."""

import msgspec
import pytest

from cloud.devices.device_changes import put
from fogline.events.codec import Batch
from fogline.events.device_report import DeviceDescription, encode_description, read_availability
from fogline.events.event import rfc3339
from fogline_cloud.devices.device_facts import all_facts_of
from fogline_cloud.devices.device_table import DeviceTable
from fogline_cloud.devices.record import ABOUT, DeviceKey
from fogline_cloud.settings import DeviceSettings, Learn
from fogline_cloud.shard import sightings as module
from fogline_cloud.shard.sightings import Sightings, abouts
from fogline_lab.events import make_event

START_MS = 1_790_000_000_000
PLUG = DeviceDescription(
    name="hall/plug", vendor="Xiaomi", model="ZNCZ02LM", power_source="Mains (single phase)", firmware="1.3"
)


def batch(*events: tuple[str, str, bytes]) -> Batch:
    """Events of (device, type, data)."""
    recorded = rfc3339(START_MS * 1_000_000)
    return Batch.of(
        [
            make_event(n, tenant="acme", device=device, type=kind, data=data, recordedtime=recorded)
            for n, (device, kind, data) in enumerate(events, 1)
        ]
    )


def described(device: str = "0x01", description: DeviceDescription = PLUG) -> tuple[str, str, bytes]:
    return device, "device", encode_description(description)


def noted(sightings: Sightings, *events: tuple[str, str, bytes], gateway: str = "gw-1", table: DeviceTable | None = None):
    found = dict(abouts(sightings, gateway, batch(*events), "acme", START_MS))
    for device, about in found.items() if table is not None else ():
        table.apply(DeviceKey(ABOUT, device, gateway).encode(), msgspec.json.encode(about))
    return found


def test_described_device_is_in_the_registry_with_its_model_and_firmware():
    table = DeviceTable()
    noted(Sightings(table, DeviceSettings()), described(), ("0x01", "availability", b'{"state":"offline"}'), table=table)
    facts = all_facts_of(table.get("0x01"))
    assert (facts["name"], facts["vendor"], facts["model"], facts["firmware"]) == ("hall/plug", "Xiaomi", "ZNCZ02LM", "1.3")
    assert (facts["online"], facts["offline_since"]) == (False, "2026-09-21T14:13:20Z")
    assert facts["last_seen"] is None


def test_the_same_is_written_once():
    table = DeviceTable()
    sightings = Sightings(table, DeviceSettings())
    offline = "0x01", "availability", b"offline"
    assert list(noted(sightings, described(), described())) == ["0x01"]
    assert noted(sightings, described()) == {}
    assert list(noted(sightings, offline)) == ["0x01"]
    assert noted(sightings, offline) == {}
    assert noted(sightings, ("0x01", "availability", b"online"))["0x01"].online is True
    assert noted(sightings, described(description=DeviceDescription(name="x")))["0x01"].online is True


@pytest.mark.parametrize(
    ("learn", "expected"), [(Learn.NONE, []), (Learn.REGISTERED, ["0x01", "lamp-1"]), (Learn.ALL, ["0x01", "0x02", "lamp-1"])]
)
def test_availability_alone_adds_no_device_that_nobody_has_set(learn, expected):
    table = DeviceTable()
    put(table, "lamp-1")
    events = described(), ("0x02", "availability", b"online"), ("lamp-1", "availability", b"online")
    assert sorted(noted(Sightings(table, DeviceSettings(learn=learn)), *events)) == expected


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b'{"name":1}', b'{"name":"' + b"x" * 200 + b'"}'])
def test_description_that_is_none_is_not_noted(data):
    assert noted(Sightings(DeviceTable(), DeviceSettings()), ("0x01", "device", data)) == {}


def test_program_cannot_add_more_devices_than_a_gateway_may(monkeypatch):
    monkeypatch.setattr("fogline_cloud.devices.device_table.MAX_LEARNT_A_GATEWAY", 2)
    table = DeviceTable()
    sightings = Sightings(table, DeviceSettings())
    for n in range(4):
        noted(sightings, described(f"0x{n}"), table=table)
    assert len(table) == 2


def test_memory_of_descriptions_is_bounded(monkeypatch):
    monkeypatch.setattr(module, "MOST", 2)
    sightings = Sightings(DeviceTable(), DeviceSettings())
    noted(sightings, *(described(f"0x{n}") for n in range(5)))
    assert len(sightings._abouts) == 2


def test_description_and_availability_are_no_sign_of_the_device():
    """Zigbee2MQTT publishes `offline` because the device is silent."""
    table = DeviceTable()
    sightings = Sightings(table, DeviceSettings(learn=Learn.ALL))
    events = described(), ("0x01", "availability", b"offline")
    assert list(sightings.due("gw-1", batch(*events), "acme", START_MS)) == []
    assert [device for device, _ in sightings.due("gw-1", batch(("0x01", "telemetry", b"{}")), "acme", START_MS)] == ["0x01"]


def test_introduced_device_is_seen_by_its_own_events():
    table = DeviceTable()
    sightings = Sightings(table, DeviceSettings())
    noted(sightings, described(), table=table)
    assert [device for device, _ in sightings.due("gw-1", batch(("0x01", "telemetry", b"{}")), "acme", START_MS)] == ["0x01"]


@pytest.mark.parametrize(
    ("data", "online"),
    [(b"Online", True), (b"offline", False), (b"true", True), (b'{"state":"offline"}', False), (b"{", None), (b"away", None)],
)
def test_availability_is_read_in_the_forms_of_the_programs(data, online):
    assert read_availability(data) is online
