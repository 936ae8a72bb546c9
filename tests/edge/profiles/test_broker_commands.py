"""Commands to devices behind a broker: what is published, and what the documented messages after it decide."""

import pytest

from edge.profiles.broker_messages import MESSAGES
from fogline.commands.command import Reply
from fogline.errors import Poison
from fogline.events.event import Lane
from fogline_edge.adapters.mqtt_client.access import check_client
from fogline_edge.adapters.mqtt_client.profiles import KeptOfClient, build_profiles
from fogline_edge.broker_settings import BrokerCommandSettings, MqttClientSettings, TopicSettings
from fogline_edge.profiles.broker_commands.exchange import InDoubt, Publication
from fogline_edge.profiles.profile import BrokerMessage, Filter, Ignored, IgnoreReason
from fogline_lab.commands import make_command

CLIENT = "fogline-acme-gw-1-site"
PLUG = "0x00158d00018255df"


def profiles(profile, **given):
    settings = MqttClientSettings(name="site", profile=profile, send_commands=True, **given)
    check_client(settings)
    return build_profiles(settings, CLIENT, KeptOfClient())


def plain(**command):
    topics = [TopicSettings(topic="plant/{device}/state"), TopicSettings(topic="plant/{device}/online", type="availability")]
    return profiles("plain", topics=topics, commands=[BrokerCommandSettings(**command)])


def message(topic, payload, *, retained=False):
    return BrokerMessage(topic, payload.encode(), retained)


def decided(exchange, *messages, time_is_up=False):
    """The first verdict, of messages that follow the own one."""
    own = exchange.publication
    exchange.received(BrokerMessage(own.topic, own.payload))
    for each in messages:
        if (verdict := exchange.received(each)) is not None:
            return verdict
    return exchange.time_is_up() if time_is_up else None


# --- Zigbee2MQTT


def zigbee(name="my_bulb", device=PLUG):
    commands = profiles("zigbee2mqtt").commands
    commands.note(message("zigbee2mqtt/bridge/devices", f'[{{"ieee_address":"{device}","friendly_name":"{name}"}}]'))
    return commands


def set_state(commands, data=b'{"state": "ON"}', name="set"):
    return commands.begin(make_command(PLUG, name, data=data))


@pytest.mark.parametrize(
    ("failure", "name", "status"),
    [
        ("z2m-timeout", "heating_technical", None),
        ("z2m-no-answer-of-the-adapter", "Lamp Gang Boven", None),
        ("z2m-expired", "my_sensor", 503),
        ("z2m-unknown", "my_bulb", 404),
        ("z2m-no-converter", "my_bulb", 422),
    ],
)
def test_failure_that_zigbee2mqtt_logs_decides(failure, name, status):
    verdict = decided(set_state(zigbee(name)), MESSAGES[failure])
    assert isinstance(verdict, InDoubt) if status is None else (verdict.status, verdict.content_type) == (status, "text/plain")


@pytest.mark.parametrize("failure", ["z2m-timeout", "z2m-expired", "z2m-unknown", "z2m-info"])
def test_log_about_another_device_decides_nothing(failure):
    assert decided(set_state(zigbee("another")), MESSAGES[failure]) is None


def test_failure_to_read_is_none_to_set():
    text = MESSAGES["z2m-expired"].payload.decode().replace("'set'", "'get'")
    assert decided(set_state(zigbee("my_sensor")), message("zigbee2mqtt/bridge/logging", text)) is None


@pytest.mark.parametrize(
    ("data", "reported", "proven"),
    [
        (b'{"state": "on"}', ['{"state":"ON"}'], True),
        (b'{"state": "ON", "brightness": 215}', ['{"state":"ON","brightness":100}'], False),
        (b'{"state": "ON", "brightness": 215}', ['{"state":"ON","brightness":100}', '{"state":"ON","brightness":215}'], True),
        (b'{"brightness": 215, "transition": 3}', ['{"brightness":215}'], True),
        (b'{"color": {"x": 0.3, "y": 0.3}}', ['{"color":{"x":0.3,"y":0.3,"hue":2}}'], True),
        (b'{"color": {"hex": "#fff"}}', ['{"color":{"x":0.3,"y":0.3}}'], False),
        (b'{"state": "TOGGLE"}', ['{"state":"ON"}'], True),
        (b'{"state": "TOGGLE"}', ['{"state":"OFF"}'], False),
        (b'{"child_lock": true}', ['{"child_lock":1}'], False),
        (b'{"state": "ON"}', ['{"state":null}'], False),
    ],
)
def test_only_the_wanted_values_are_an_echo(data, reported, proven):
    commands = zigbee()
    commands.note(message("zigbee2mqtt/my_bulb", '{"state":"OFF","brightness":1,"color":{"x":0,"y":0},"child_lock":false}'))
    verdict = decided(set_state(commands, data), *(message("zigbee2mqtt/my_bulb", each) for each in reported))
    assert verdict == (Reply(200, reported[-1].encode(), "application/json") if proven else None)


def test_single_attributes_are_an_echo():
    exchange = set_state(zigbee(), b'{"state": "ON", "brightness": 215}')
    own = exchange.publication
    exchange.received(message("zigbee2mqtt/my_bulb/state", "OFF"))
    exchange.received(BrokerMessage(own.topic, own.payload))
    assert exchange.received(message("zigbee2mqtt/my_bulb/state", "ON")) is None
    verdict = exchange.received(message("zigbee2mqtt/my_bulb/brightness", "215"))
    assert verdict == Reply(200, b'{"state":"ON","brightness":215}', "application/json")


def test_state_that_was_read_is_the_answer_at_the_end_of_the_time():
    exchange = set_state(zigbee(), b'{"state": ""}', "get")
    assert exchange.publication.topic == "zigbee2mqtt/my_bulb/get"
    assert decided(exchange, MESSAGES["z2m-state"]) is None
    assert exchange.time_is_up() == Reply(202, MESSAGES["z2m-state"].payload, "application/json")


@pytest.mark.parametrize(("answer", "status"), [("z2m-response", 200), ("z2m-response-error", 500)])
def test_zigbee2mqtt_itself_answers_by_the_transaction(answer, status):
    exchange = zigbee().begin(make_command("zigbee2mqtt", "permit_join", data=b'{"value": true}'))
    assert decided(exchange, message(MESSAGES[answer].topic, '{"status":"ok","transaction":"other"}')) is None
    assert decided(exchange, MESSAGES[answer]).status == status


# --- Tasmota


def tasmota(name="tasmota_switch", **given):
    commands = profiles("tasmota", **given).commands
    commands.note(message(f"tele/{name}/STATE", "{}"))
    return commands


def of_tasmota(commands, name, text, device="tasmota_switch", **more):
    return commands.begin(make_command(device, name, data=text.encode(), content_type="text/plain", **more))


@pytest.mark.parametrize(
    ("name", "text", "answer", "status"),
    [
        ("Power", "ON", "tasmota-power", 200),
        ("Power1", "1", "tasmota-power", 200),
        ("Power", "on", "tasmota-power-text", 200),
        ("POWER", "OFF", "tasmota-power", None),
        ("Power", "TOGGLE", "tasmota-power", 200),
        ("Power2", "ON", "tasmota-power", None),
        ("Power", "", "tasmota-power", 200),
        ("Dimmer", "50", "tasmota-power", None),
        ("Dimmer", "50", '{"POWER":"ON","Dimmer":50}', 200),
        ("Dimmer", "50", '{"POWER":"ON","Dimmer":100}', None),
        ("Color", "#FF0000", '{"POWER":"ON","Dimmer":100,"Color":"FF000000"}', 200),
        ("SetOption4", "1", '{"SetOption4":"ON"}', 200),
        ("Status", "0", "tasmota-status", 200),
        ("Pover", "ON", "tasmota-unknown", 422),
        ("Power", "ON", '{"Command":"Unknown","Input":"POVER"}', None),
    ],
)
def test_result_that_names_the_command_decides(name, text, answer, status):
    exchange = of_tasmota(tasmota(), name, text)
    assert exchange.publication == Publication(f"cmnd/tasmota_switch/{name}", text.encode())
    verdict = decided(exchange, MESSAGES.get(answer) or message("stat/tasmota_switch/RESULT", answer))
    assert (verdict.status if verdict is not None else None) == status


def test_answer_on_the_topic_of_the_command_decides():
    """`SetOption4 1`."""
    verdict = decided(of_tasmota(tasmota(), "Power", "ON"), message("stat/tasmota_switch/POWER", '{"POWER":"ON"}'))
    assert verdict.status == 200


def test_backlog_is_only_queued_and_one_unknown_command_of_it_fails():
    queued = message("stat/tasmota_switch/RESULT", '{"Backlog":"Appended"}')
    verdict = decided(of_tasmota(tasmota(), "Backlog", "Power ON; Dimmer 5"), queued, time_is_up=True)
    assert verdict.status == 202
    verdict = decided(of_tasmota(tasmota(), "Backlog", "Pover ON; Dimmer 5"), queued, MESSAGES["tasmota-unknown"])
    assert verdict.status == 422


@pytest.mark.parametrize(
    ("full_topic", "topic"), [("%prefix%/%topic%/", "cmnd/haus/plug1/Power"), ("a/%topic%/%prefix%/", None)]
)
def test_topic_of_a_tasmota_command_follows_the_full_topic(full_topic, topic):
    commands = profiles("tasmota", full_topic=full_topic).commands
    name = "tele/haus/plug1/STATE" if topic else "a/plug/tele/STATE"
    commands.note(message(name, "{}"))
    device = "haus:2Fplug1" if topic else "plug"
    assert of_tasmota(commands, "Power", "ON", device).publication.topic == (topic or "a/plug/cmnd/Power")


def test_json_string_goes_to_tasmota_without_quotes():
    exchange = tasmota().begin(make_command("tasmota_switch", "Power", data=b'"ON"'))
    assert exchange.publication.payload == b"ON"


# --- Shelly


def shelly(**given):
    commands = profiles("shelly", **given).commands
    commands.note(message("shellydev1-c8f09e47e6f0/status/switch:0", "{}"))
    commands.note(message("shellies/shelly1-ABABAB/relay/0", "off"))
    return commands


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ("shelly-2-result", Reply(200, b'{"was_on":true}', "application/json")),
        ("shelly-2-error", Reply(404, b'{"code":404,"message":"No handler for Switch.Sat"}', "application/json")),
        ("shelly-2-argument", Reply(422, b'{"code":-103,"message":"Invalid argument \'on\'!"}', "application/json")),
    ],
)
def test_shelly_of_generation_2_answers_by_the_id(answer, verdict):
    device = "shellydev1-c8f09e47e6f0"
    commands = shelly()
    exchange = commands.begin(make_command(device, "Switch.Set", data=b'{"id":0,"on":true}'))
    expected = f'{{"id":"CMD-1","src":"{CLIENT}/{device}","method":"Switch.Set","params":{{"id":0,"on":true}}}}'
    assert exchange.publication == Publication(f"{device}/rpc", expected.encode())
    other = MESSAGES[answer].payload.replace(b"CMD-1", b"CMD-2")
    assert decided(exchange, BrokerMessage(MESSAGES[answer].topic, other)) is None
    assert decided(exchange, MESSAGES[answer]) == verdict
    named = commands.answer(MESSAGES[answer])
    assert (named.device, named.command_id, named.reply) == (device, "CMD-1", verdict)


def test_one_way_call_names_no_topic_that_the_gateway_reads():
    exchange = shelly().begin(make_command("shellydev1-c8f09e47e6f0", "Shelly.Reboot", data=b"", reply=False))
    assert exchange.publication.payload == f'{{"id":"CMD-1","src":"{CLIENT}","method":"Shelly.Reboot"}}'.encode()


@pytest.mark.parametrize(
    ("text", "reported", "status"), [("on", "on", 200), ("on", "off", None), ("toggle", "on", 200), ("off", "off", 202)]
)
def test_shelly_of_generation_1_answers_by_its_state(text, reported, status):
    exchange = of_tasmota(shelly(), "relay.0", text, "shelly1-ABABAB")
    assert exchange.publication == Publication("shellies/shelly1-ABABAB/relay/0/command", text.encode())
    verdict = decided(exchange, message("shellies/shelly1-ABABAB/relay/0", reported), time_is_up=True)
    assert (verdict.status if isinstance(verdict, Reply) else None) == status


def test_topic_prefix_of_shelly_devices_may_have_more_levels():
    commands = profiles("shelly", topic_prefix="site/{device}").commands
    commands.note(message("site/kitchen/online", "true", retained=True))
    assert commands.begin(make_command("kitchen", "Switch.Toggle")).publication.topic == "site/kitchen/rpc"


@pytest.mark.parametrize(
    ("topic", "payload", "device", "kind", "lane"),
    [
        ("shellypro4pm-f008d1d8b8b8/online", "true", "shellypro4pm-f008d1d8b8b8", "availability", Lane.ALARM),
        ("shellies/shelly1-AB/online", "false", "shelly1-AB", "availability", Lane.ALARM),
        ("shellies/announce", "{}", "shellies", "info", Lane.TELEMETRY),
        ("shellies/shelly1-AB/relay/0/power", "2.1", "shelly1-AB", "telemetry", Lane.TELEMETRY),
        ("shellypro4pm-f008d1d8b8b8/status/switch:0", "{}", "shellypro4pm-f008d1d8b8b8", "status", Lane.TELEMETRY),
    ],
)
def test_message_of_a_shelly_is_an_event(topic, payload, device, kind, lane):
    arrival = profiles("shelly").events.read(message(topic, payload, retained=topic.endswith("online")))
    assert (arrival.device, arrival.type, arrival.lane, arrival.data) == (device, kind, lane, payload.encode())


def test_notification_of_a_shelly_has_its_time():
    arrival = profiles("shelly").events.read(MESSAGES["shelly-2-status"])
    assert (arrival.device, arrival.type) == ("shellypro4pm-f008d1d8b8b8", "telemetry")
    assert arrival.time_ns == 1_631_186_545_040_000_000


@pytest.mark.parametrize(
    ("topic", "why"),
    [
        ("shellies/shelly1-AB/relay/0/command", IgnoreReason.COMMAND),
        ("shellies/command", IgnoreReason.COMMAND),
        ("shellypro4pm-f008d1d8b8b8/rpc", IgnoreReason.COMMAND),
        (f"{CLIENT}/shellypro4pm-f008d1d8b8b8/rpc", IgnoreReason.ANSWER),
    ],
)
def test_commands_to_a_shelly_and_their_answers_are_no_events(topic, why):
    assert profiles("shelly").events.read(message(topic, "on")) == Ignored(why)


# --- any broker


@pytest.mark.parametrize(
    ("settings", "data", "echo", "status"),
    [
        ({"echo": "plant/{device}/state", "echo_field": "/on", "echo_argument": "/on"}, b'{"on":true}', '{"on":true}', 200),
        ({"echo": "plant/{device}/state", "echo_field": "/on", "echo_argument": "/on"}, b'{"on":true}', '{"rpm":3}', None),
        ({"echo": "plant/{device}/state", "echo_field": "/on", "echo_argument": "/on"}, b'{"on":true}', '{"on":false}', None),
        ({"echo": "plant/{device}/state", "echo_argument": ""}, b"open", "open", 200),
        ({"echo": "plant/{device}/state", "echo_value": "done"}, b"x", "done", 200),
        ({"echo": "plant/{device}/state"}, b"x", "anything", 200),
        ({}, b"x", "anything", None),
        ({"error": "plant/{device}/state"}, b"x", "no such valve", 500),
    ],
)
def test_echo_of_a_plain_device_is_as_the_settings_say(settings, data, echo, status):
    commands = plain(topic="plant/{device}/set/{command}", **settings).commands
    commands.note(message("plant/valve-1/state", '{"on":false}'))
    exchange = commands.begin(make_command("valve-1", "switch", data=data))
    assert exchange.publication == Publication("plant/valve-1/set/switch", data)
    verdict = decided(exchange, message("plant/valve-1/state", echo))
    assert (verdict.status if verdict is not None else None) == status


def test_acknowledgement_with_the_id_is_of_this_command():
    commands = plain(topic="plant/{device}/cmd/{id}", echo="plant/{device}/ack/{id}").commands
    commands.note(message("plant/valve-1/state", "x"))
    exchange = commands.begin(make_command("valve-1", "switch"))
    assert decided(exchange, message("plant/valve-1/ack/CMD-0", "ok")) is None
    assert decided(exchange, message("plant/valve-1/ack/CMD-1", "ok")) == Reply(200, b"ok", "text/plain")


def test_topics_of_plain_commands_are_subscribed_to_and_are_no_dead_letters():
    both = plain(topic="plant/{device}/set/{command}", echo="plant/{device}/ack")
    assert list(both.commands.filters) == [Filter("plant/+/set/+"), Filter("plant/+/ack")]
    assert both.events.read(message("plant/valve-1/set/switch", "x")) == Ignored(IgnoreReason.COMMAND)
    assert both.events.read(message("plant/valve-1/ack", "x")) == Ignored(IgnoreReason.ANSWER)
    assert both.events.read(message("plant/valve-1/state", "x")).device == "valve-1"


def test_plain_device_whose_availability_is_offline_is_unreachable():
    commands = plain(topic="plant/{device}/set").commands
    commands.note(message("plant/valve-1/online", "true"))
    assert commands.directory.is_reachable("valve-1")
    commands.note(message("plant/valve-1/online", "false"))
    assert not commands.directory.is_reachable("valve-1")


@pytest.mark.parametrize(
    ("commands", "device", "name", "data"),
    [
        (zigbee, PLUG, "set", b"ON"),
        (zigbee, PLUG, "set", b"{}"),
        (zigbee, PLUG, "state", b'{"state":"ON"}'),
        (lambda: zigbee("a+b"), PLUG, "set", b'{"state":"ON"}'),
        (zigbee, "unknown", "set", b'{"state":"ON"}'),
        (tasmota, "unknown", "Power", b"ON"),
        (tasmota, "tasmota_switch", "Power", b"\xff"),
        (shelly, "unknown", "Switch.Set", b"{}"),
        (shelly, "shellydev1-c8f09e47e6f0", "Switch.Set", b"[]"),
        (shelly, "shelly1-ABABAB", "Switch.Set", b"{}"),
    ],
)
def test_command_that_no_device_can_take_is_refused(commands, device, name, data):
    with pytest.raises(Poison):
        commands().begin(make_command(device, name, data=data, content_type="text/plain"))
