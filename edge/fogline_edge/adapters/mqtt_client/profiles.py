"""The profile of the settings: what reads a broker's messages, and what sends commands."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fogline.errors import Misconfigured
from fogline_edge.adapters.mqtt_client.state import DIGESTS, NAMES, NOTES
from fogline_edge.adapters.port import Port
from fogline_edge.broker_settings import BrokerCommandSettings, MqttClientSettings
from fogline_edge.profiles.broker_commands.exchange import BrokerCommandProfile
from fogline_edge.profiles.broker_commands.plain import PlainCommandRule, PlainCommands, TopicTemplate
from fogline_edge.profiles.broker_commands.shelly import ShellyCommands
from fogline_edge.profiles.broker_commands.tasmota import TasmotaCommands
from fogline_edge.profiles.broker_commands.values import value_of
from fogline_edge.profiles.broker_commands.zigbee2mqtt import Zigbee2MqttCommands
from fogline_edge.profiles.plain import Plain
from fogline_edge.profiles.profile import ADAPTER, Profile
from fogline_edge.profiles.shelly import Shelly
from fogline_edge.profiles.tasmota import Tasmota
from fogline_edge.profiles.zigbee2mqtt import Zigbee2Mqtt
from fogline_edge.rules.fields import PointerField, parse_field
from fogline_edge.rules.payload import MISSING, follow


class KeptOfClient(NamedTuple):
    """What a client has kept, by kind."""

    names: Mapping[str, bytes] = {}
    digests: Mapping[str, bytes] = {}
    notes: Mapping[str, bytes] = {}


class ClientProfiles(NamedTuple):
    """What reads the messages of a client, and what sends its commands (None: it sends none)."""

    events: Profile
    commands: BrokerCommandProfile | None


def keys_of(settings: MqttClientSettings, kind: str) -> str:
    """Return the prefix of what a client keeps in the port, of one kind."""
    return f"{ADAPTER}/{settings.name}/{kind}/"


def client_id_of(settings: MqttClientSettings, tenant: str, gateway: str) -> str:
    """Return the client id."""
    return settings.client_id or f"fogline-{tenant}-{gateway}-{settings.name}"


def make_profiles(settings: MqttClientSettings, port: Port) -> ClientProfiles:
    """Return the profiles of the settings. Raises `Misconfigured` for an invalid topic."""
    kept = KeptOfClient(*(_kept(port, settings, kind) for kind in (NAMES, DIGESTS, NOTES)))
    return build_profiles(settings, client_id_of(settings, port.tenant, port.gateway), kept)


def build_profiles(settings: MqttClientSettings, client_id: str, kept: KeptOfClient) -> ClientProfiles:
    """Return the profiles of the settings, with what a former run has kept. Raises `Misconfigured`."""
    sends, notes = settings.send_commands, kept.notes
    match settings.profile:
        case "zigbee2mqtt":
            names = {name: value.decode() for name, value in kept.names.items()}
            reads = Zigbee2Mqtt(settings.base_topic, names, kept.digests)
            return ClientProfiles(reads, Zigbee2MqttCommands(settings.base_topic, notes) if sends else None)
        case "tasmota":
            tasmota = Tasmota(settings.full_topic)
            return ClientProfiles(tasmota, TasmotaCommands(tasmota, notes) if sends else None)
        case "shelly":
            shelly = Shelly(settings.topic_prefix, client_id)
            return ClientProfiles(shelly, ShellyCommands(shelly, client_id, notes) if sends else None)
        case "plain":
            return _plain(settings, notes)


def _plain(settings: MqttClientSettings, notes: Mapping[str, bytes]) -> ClientProfiles:
    rules = [_rule(each) for each in settings.commands] if settings.send_commands else []
    answers = [each for rule in rules for each in (rule.echo, rule.error) if each is not None]
    plain = Plain(
        settings.topics,
        is_command=lambda topic: any(rule.topic.device_in(topic) is not None for rule in rules),
        is_answer=lambda topic: any(each.device_in(topic) is not None for each in answers),
    )
    return ClientProfiles(plain, PlainCommands(plain, rules, notes) if rules else None)


def _rule(settings: BrokerCommandSettings) -> PlainCommandRule:
    key = "mqtt_clients.commands: "
    if settings.echo_value is not None and settings.echo_argument is not None:
        raise Misconfigured(f"{key}echo_value and echo_argument exclude each other")
    if settings.echo is None and (settings.echo_value is not None or settings.echo_argument is not None or settings.echo_field):
        raise Misconfigured(
            f"{key}echo_field, echo_value and echo_argument need echo, for example echo = 'plant/{{device}}/state'"
        )
    wanted: Callable[[bytes], Any] | None = None
    if settings.echo_argument is not None:
        wanted = _reader(settings.echo_argument, f"{key}echo_argument")
    elif settings.echo_value is not None:
        value = settings.echo_value
        wanted = lambda _: value  # noqa: E731 - a constant
    return PlainCommandRule(
        topic=TopicTemplate(f"{key}topic", settings.topic),
        commands=frozenset(settings.commands),
        echo=TopicTemplate(f"{key}echo", settings.echo) if settings.echo is not None else None,
        error=TopicTemplate(f"{key}error", settings.error) if settings.error is not None else None,
        read=_reader(settings.echo_field, f"{key}echo_field"),
        wanted_in=wanted,
    )


def _reader(pointer: str, key: str) -> Callable[[bytes], Any]:
    """Return what reads a value of a payload: None if it has none. Raises `Misconfigured`."""
    field = parse_field(pointer, key)
    if not isinstance(field, PointerField):
        raise Misconfigured(f"{key} = {pointer!r}: expected a JSON pointer such as '/state', or '' for the whole payload")

    def read(payload: bytes) -> Any:
        value = follow(value_of(payload), field)
        return None if value is MISSING else value

    return read


def _kept(port: Port, settings: MqttClientSettings, kind: str) -> Mapping[str, bytes]:
    prefix = keys_of(settings, kind)
    return {key.removeprefix(prefix): value for key, value in port.kept(prefix).items()}
