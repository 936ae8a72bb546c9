"""The profile of the settings: what reads a broker's messages, and what sends commands."""

from collections.abc import Mapping

from fogline_edge.adapters.port import Port
from fogline_edge.profiles.broker_commands.exchange import BrokerCommandProfile
from fogline_edge.profiles.broker_commands.zigbee2mqtt import Zigbee2MqttCommands
from fogline_edge.profiles.plain import Plain
from fogline_edge.profiles.profile import ADAPTER, Profile
from fogline_edge.profiles.tasmota import Tasmota
from fogline_edge.profiles.zigbee2mqtt import Zigbee2Mqtt
from fogline_edge.settings import MqttClientSettings


def keys_of(settings: MqttClientSettings, kind: str) -> str:
    """Return the prefix of what a client keeps in the port, of one kind."""
    return f"{ADAPTER}/{settings.name}/{kind}/"


def make_profile(port: Port, settings: MqttClientSettings) -> Profile:
    """Return the profile that reads the messages. Raises `Misconfigured` for an invalid topic."""
    match settings.profile:
        case "zigbee2mqtt":
            names = {name: value.decode() for name, value in _kept(port, settings, "name").items()}
            return Zigbee2Mqtt(settings.base_topic, names)
        case "tasmota":
            return Tasmota(settings.full_topic)
        case "plain":
            return Plain(settings.topics)


def make_commands(port: Port, settings: MqttClientSettings) -> BrokerCommandProfile | None:
    """Return the profile that sends commands, if the settings ask for it."""
    if not settings.send_commands:
        return None
    notes = _kept(port, settings, "device")
    match settings.profile:
        case "zigbee2mqtt":
            return Zigbee2MqttCommands(settings.base_topic, notes)
        case _:
            return None


def _kept(port: Port, settings: MqttClientSettings, kind: str) -> Mapping[str, bytes]:
    prefix = keys_of(settings, kind)
    return {key.removeprefix(prefix): value for key, value in port.kept(prefix).items()}
