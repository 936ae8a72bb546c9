"""What a simulated device says, and how its counter is read back out of it. Pure.

Every message carries the device's own counter `n`, so that (device, n) can be found again in the raw record in Kafka
and in the table `readings`.
"""

import json
from dataclasses import dataclass
from enum import StrEnum

JSON = "application/json"
SENML = "application/senml+json"

METRICS = ("n", "telemetry")
"""The metrics of `readings` that hold `n`; a raw number is named by its topic."""


class Kind(StrEnum):
    """What sort of device."""

    LAMP = "lamp"
    """JSON on `telemetry`."""
    WEATHER = "weather"
    """SenML (RFC 8428)."""
    METER = "meter"
    """A bare number."""
    DOOR = "door"
    """JSON on `event`: the alarm lane."""
    PLANT = "plant"
    """JSON on a free topic that the gateway's settings declare."""


_OTHERS = (Kind.WEATHER, Kind.METER, Kind.DOOR, Kind.PLANT)


@dataclass(frozen=True, slots=True)
class Device:
    """One device. `version`: of MQTT, 4 (3.1.1) or 5. `gateway`: index of the one that it speaks to."""

    name: str
    kind: Kind
    version: int
    gateway: int


def fleet(count: int, gateways: int) -> list[Device]:
    """`count` devices: of every ten six lamps and one of each other kind; both versions and all gateways in turn."""
    devices = []
    for index in range(count):
        rest = index % 10 - 6
        kind = Kind.LAMP if rest < 0 else _OTHERS[rest]
        version = 5 if (index // gateways) % 2 else 4
        devices.append(Device(f"{kind}-{index + 1:02}", kind, version, index % gateways))
    return devices


def topic(device: Device) -> str:
    """Where the device publishes. SenML over 3.1.1, which has no content type, says so in Hono's property bag."""
    match device.kind:
        case Kind.DOOR:
            return "event"
        case Kind.PLANT:
            return f"plant/{device.name}/climate"
        case Kind.WEATHER if device.version == 4:
            return "telemetry/?content-type=application%2Fsenml%2Bjson"
    return "telemetry"


def content_type(device: Device) -> str | None:
    """What an MQTT 5 PUBLISH says of its payload."""
    if device.version == 4:
        return None
    return SENML if device.kind is Kind.WEATHER else None


def encode(device: Device, n: int, temperature: float) -> bytes:
    """The `n`-th message, with a temperature in degrees Celsius."""
    match device.kind:
        case Kind.METER:
            return b"%d" % n
        case Kind.WEATHER:
            return json.dumps([{"n": "n", "v": n}, {"n": "temperature", "u": "Cel", "v": temperature}]).encode()
        case Kind.DOOR:
            return json.dumps({"n": n, "open": n % 2 == 0}).encode()
    return json.dumps({"n": n, "temperature": temperature}).encode()


def counter_of(media_type: str, body: bytes) -> int | None:
    """`n` of a raw record, `None` for a body that no device of ours sent."""
    try:
        value = json.loads(body)
    except ValueError:
        return None
    if media_type == SENML and isinstance(value, list):
        found = (record.get("v") for record in value if isinstance(record, dict) and record.get("n") == "n")
        value = next(found, None)
    elif isinstance(value, dict):
        value = value.get("n")
    return value if isinstance(value, int) and not isinstance(value, bool) else None
