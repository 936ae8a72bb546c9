"""What a simulated device says, and how its counter is read back out of it. Pure.

Every message carries the device's own counter `n`, so that (device, n) can be found again in the raw record in Kafka
and in the table `readings`.
"""

import json
from dataclasses import dataclass
from enum import StrEnum

JSON = "application/json"
SENML = "application/senml+json"
FORMATS = {JSON: 50, SENML: 110}
"""CoAP's numbers for them (IANA, CoAP Content-Formats)."""

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
    TANK = "tank"
    """JSON over CoAP; it is a CoAP server itself, and commands go there."""
    SOIL = "soil"
    """SenML over CoAP; it takes a command when it asks for one."""


_OTHERS = (Kind.WEATHER, Kind.METER, Kind.DOOR, Kind.PLANT)
_COAP = (Kind.TANK, Kind.SOIL)


@dataclass(frozen=True, slots=True)
class Device:
    """One device. `version`: of MQTT, 4 (3.1.1) or 5; 0: it speaks CoAP. `gateway`: index of the one that it speaks to.

    `command_qos`: at which an MQTT device subscribes to its commands.
    """

    name: str
    kind: Kind
    version: int
    gateway: int
    command_qos: int = 1

    @property
    def coap(self) -> bool:
        """Whether it speaks CoAP."""
        return self.kind in _COAP

    @property
    def serves(self) -> bool:
        """Whether it is a CoAP server."""
        return self.kind is Kind.TANK


def fleet(count: int, gateways: int) -> list[Device]:
    """`count` devices: every fourth of a gateway speaks CoAP. Of ten others six are lamps, and one is of each other kind.

    Both kinds of CoAP devices, both versions of MQTT, and both QoS of commands in turn.
    """
    devices: list[Device] = []
    mqtt = 0
    for index in range(count):
        turn, gateway = divmod(index, gateways)
        if turn % 4 == 3:
            kind = _COAP[turn // 4 % 2]
            devices.append(Device(f"{kind}-{index + 1:02}", kind, 0, gateway))
            continue
        rest = mqtt % 10 - 6
        kind = Kind.LAMP if rest < 0 else _OTHERS[rest]
        version = 5 if mqtt // gateways % 2 else 4
        qos = 2 if mqtt // (2 * gateways) % 2 else 1
        devices.append(Device(f"{kind}-{index + 1:02}", kind, version, gateway, qos))
        mqtt += 1
    return devices


def topic(device: Device) -> str:
    """Where an MQTT device publishes. SenML over 3.1.1, which has no content type, says so in Hono's property bag."""
    match device.kind:
        case Kind.DOOR:
            return "event"
        case Kind.PLANT:
            return f"plant/{device.name}/climate"
        case Kind.WEATHER if device.version == 4:
            return "telemetry/?content-type=application%2Fsenml%2Bjson"
    return "telemetry"


def path(device: Device) -> tuple[str, ...]:
    """Where a CoAP device sends its messages: `/telemetry//{device}`, with the gateway's own tenant."""
    return ("telemetry", "", device.name)


def content_type(device: Device) -> str | None:
    """What an MQTT 5 PUBLISH or a CoAP request says of its payload."""
    match device.kind:
        case Kind.TANK:
            return JSON
        case Kind.SOIL:
            return SENML
        case Kind.WEATHER if device.version == 5:
            return SENML
    return None


def encode(device: Device, n: int, temperature: float) -> bytes:
    """The `n`-th message, with a temperature in degrees Celsius."""
    match device.kind:
        case Kind.METER:
            return b"%d" % n
        case Kind.WEATHER | Kind.SOIL:
            return json.dumps([{"n": "n", "v": n}, {"n": "temperature", "u": "Cel", "v": temperature}]).encode()
        case Kind.DOOR:
            return json.dumps({"n": n, "open": n % 2 == 0}).encode()
    return json.dumps({"n": n, "temperature": temperature}).encode()


def question(battery: float) -> bytes:
    """What a CoAP device sends to ask for a command, as SenML.

    There is no counter in it: the gateway stores it before it holds it, and if the gateway is killed meanwhile, the
    device is not told.
    """
    return json.dumps([{"n": "battery", "u": "%EL", "v": battery}]).encode()


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
