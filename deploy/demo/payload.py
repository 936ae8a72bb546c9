"""Simulated MQTT and CoAP devices, their messages, and the decoding of a message's counter. Pure.

Every message carries the device's own counter `n`, so that (device, n) identifies it in the raw record in Kafka and
in the table `readings`.
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


class DeviceKind(StrEnum):
    """Kind of a device."""

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
    """SenML over CoAP; it polls for commands."""


_OTHERS = (DeviceKind.WEATHER, DeviceKind.METER, DeviceKind.DOOR, DeviceKind.PLANT)
_COAP = (DeviceKind.TANK, DeviceKind.SOIL)


@dataclass(frozen=True, slots=True)
class Device:
    """One device. `version`: of MQTT, 4 (3.1.1) or 5; 0: it speaks CoAP. `gateway`: index of the one that it speaks to.

    `command_qos`: at which an MQTT device subscribes to its commands.
    """

    name: str
    kind: DeviceKind
    version: int
    gateway: int
    command_qos: int = 1

    @property
    def coap(self) -> bool:
        """True if the device speaks CoAP."""
        return self.kind in _COAP

    @property
    def serves(self) -> bool:
        """True if the device is a CoAP server."""
        return self.kind is DeviceKind.TANK


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
        kind = DeviceKind.LAMP if rest < 0 else _OTHERS[rest]
        version = 5 if mqtt // gateways % 2 else 4
        qos = 2 if mqtt // (2 * gateways) % 2 else 1
        devices.append(Device(f"{kind}-{index + 1:02}", kind, version, gateway, qos))
        mqtt += 1
    return devices


def topic(device: Device) -> str:
    """Return the topic of an MQTT device. MQTT 3.1.1 has no content type: SenML is named in Hono's property bag."""
    match device.kind:
        case DeviceKind.DOOR:
            return "event"
        case DeviceKind.PLANT:
            return f"plant/{device.name}/climate"
        case DeviceKind.WEATHER if device.version == 4:
            return "telemetry/?content-type=application%2Fsenml%2Bjson"
    return "telemetry"


def path(device: Device) -> tuple[str, ...]:
    """Return the path of a CoAP device: `/telemetry//{device}`, with the gateway's own tenant."""
    return ("telemetry", "", device.name)


def content_type(device: Device) -> str | None:
    """Return the content type of an MQTT 5 PUBLISH or a CoAP request, if it has one."""
    match device.kind:
        case DeviceKind.TANK:
            return JSON
        case DeviceKind.SOIL:
            return SENML
        case DeviceKind.WEATHER if device.version == 5:
            return SENML
    return None


def encode(device: Device, n: int, temperature: float) -> bytes:
    """The `n`-th message, with a temperature in degrees Celsius."""
    match device.kind:
        case DeviceKind.METER:
            return b"%d" % n
        case DeviceKind.WEATHER | DeviceKind.SOIL:
            return json.dumps([{"n": "n", "v": n}, {"n": "temperature", "u": "Cel", "v": temperature}]).encode()
        case DeviceKind.DOOR:
            return json.dumps({"n": n, "open": n % 2 == 0}).encode()
    return json.dumps({"n": n, "temperature": temperature}).encode()


def question(battery: float) -> bytes:
    """Encode a poll for commands, as SenML.

    It has no counter: the gateway stores it before it waits for a command. If the gateway is killed meanwhile, the device
    gets no acknowledgement.
    """
    return json.dumps([{"n": "battery", "u": "%EL", "v": battery}]).encode()


def counter_of(media_type: str, body: bytes) -> int | None:
    """Return the counter of a raw record, `None` for a body of no device of ours."""
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
