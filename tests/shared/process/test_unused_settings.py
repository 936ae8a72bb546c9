"""Settings that another setting switches off: each is refused, with the file, the key and what to do, or explained."""

from typing import NamedTuple

import pytest

import fogline_cloud.settings
import fogline_cloud.unused_settings
import fogline_edge.settings
import fogline_edge.unused_settings
from fogline.errors import Misconfigured
from fogline_cloud.commands.client.operator_security import operator_security
from fogline_edge.operate.settings_check import check
from rules.source import ROOT

EDGE = 'tenant = "acme"\ngateway = "gw-1"\ndata = "data"\n'
CLOUD = 'tenant = "acme"\nkafka = { "bootstrap.servers" = "127.0.0.1:9092" }\n'
TLS = '{ ca = "ca.pem", certificate = "own.pem", key = "own.key" }'
LISTENER = '{ certificate = "own.pem", key = "own.key", ca = "ca.pem" }'
CLIENT = '[[mqtt_clients]]\nname = "one"\nprofile = '


class Case(NamedTuple):
    """`text`: a file in which the key has no effect. `other`: one in which it has."""

    key: str
    text: str
    other: str


ON_LAN = [
    Case(
        f"{name}.{key}",
        f"[{name}]\n{key} = {value}\n{tls} = {files}",
        f"[{name}]\n{key} = {value}\nport = 0\n{tls} = {files}",
    )
    for name, tls, files in (("mqtt", "tls", LISTENER), ("http", "tls", LISTENER), ("coap", "dtls", "{}"))
    for key, value in (("host", '"127.0.0.1"'), ("plain_on_lan", "true"))
]
OF_EDGE = [
    Case("uplink.bridge", '[uplink]\nbridge = "b:5671"\nvia = { url = "amqps://r" }', '[uplink]\nbridge = "b:5671"'),
    Case(
        "uplink.via.tls",
        f'[uplink]\nvia = {{ url = "ws://127.0.0.1/x", tls = {TLS} }}',
        f'[uplink]\nvia = {{ url = "wss://r/x", tls = {TLS} }}',
    ),
    *ON_LAN,
    Case("mqtt.subscribers", '[mqtt]\nsubscribers = { a = ["#"] }', '[mqtt]\nusers = "u"\nsubscribers = { a = ["#"] }'),
    Case("mqtt_clients.base_topic", f'{CLIENT}"shelly"\nbase_topic = "z"', f'{CLIENT}"zigbee2mqtt"\nbase_topic = "z"'),
    Case("mqtt_clients.full_topic", f'{CLIENT}"shelly"\nfull_topic = "z"', f'{CLIENT}"tasmota"\nfull_topic = "z"'),
    Case("mqtt_clients.topic_prefix", f'{CLIENT}"plain"\ntopic_prefix = "z"', f'{CLIENT}"shelly"\ntopic_prefix = "z"'),
    Case(
        "mqtt_clients.command_timeout_s",
        f'{CLIENT}"shelly"\ncommand_timeout_s = 9',
        f'{CLIENT}"shelly"\nsend_commands = true\ncommand_timeout_s = 9',
    ),
    Case("ble.power_on_s", "[ble]\npower_on = false\npower_on_s = 9", "[ble]\npower_on_s = 9"),
]
OF_CLOUD = [
    *(Case(f"bridge.{key}", f'[bridge]\n{key} = "file"', f'[bridge]\n{key} = "file"\ntls = {TLS}') for key in ("users", "crl")),
    Case(
        "bridge.via.tls",
        f'[[bridge.via]]\nurl = "amqps://r"\n[[bridge.via]]\nurl = "amqp://127.0.0.1"\ntls = {TLS}',
        f'[[bridge.via]]\nurl = "amqps://r"\ntls = {TLS}',
    ),
    Case("commands.key_id", '[commands]\nkey_id = "k"', '[commands]\nkey_id = "k"\nsigning_key = "file"'),
    Case("devices.seen_every_s", '[devices]\nlearn = "none"\nseen_every_s = 9', "[devices]\nseen_every_s = 9"),
    Case(
        "sinks.*.hypertable",
        '[sinks.a]\nurl = "sqlite:///a"\nhypertable = true',
        '[sinks.a]\nurl = "postgresql://u@h/d"\nhypertable = true',
    ),
]
CASES = [
    *((fogline_edge.settings.load, EDGE, each) for each in OF_EDGE),
    *((fogline_cloud.settings.load, CLOUD, each) for each in OF_CLOUD),
]


@pytest.mark.parametrize(("load", "head", "case"), CASES, ids=lambda each: getattr(each, "key", ""))
def test_a_key_that_another_one_switches_off_is_refused_when_the_file_is_read(load, head, case, tmp_path):
    file = tmp_path / "settings.toml"
    file.write_text(head + case.other)
    load(file)
    file.write_text(head + case.text)
    with pytest.raises(Misconfigured) as refused:
        load(file)
    said = str(refused.value)
    assert said.startswith(f"{file}: {case.key} has no effect: ")
    assert any(word in said for word in (". Remove ", ". Set ", ". Write ", ". The address")), said


def test_each_known_key_has_its_case():
    known = [*fogline_edge.unused_settings.UNUSED, *fogline_cloud.unused_settings.UNUSED]
    assert {f"{each.table}.{each.key}" for each in known} == {each.key for _, _, each in CASES}


MQTT = "[mqtt]\nport = 0\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('acl = { a = ["b"] }', "mqtt.acl names users, and nobody logs in"),
        ('tls = { certificate = "c", key = "k", crl = "l" }\nusers = "u"', "mqtt.tls.crl needs mqtt.tls.ca"),
        ('[[mqtt_clients]]\nname = "a"\nprofile = "shelly"\nca_file = "f"', "ca_file needs tls = true"),
        ('[[mqtt_clients]]\nname = "a"\nprofile = "shelly"\npassword_file = "f"', "password_file needs a username"),
        ('[[mqtt_clients]]\nname = "a"\nprofile = "shelly"\ntopics = [{ topic = "{device}" }]', "only profile = 'plain'"),
        ('[uplink]\nrenew = true\nvia = { url = "amqp://127.0.0.1" }', "[uplink.via] needs [uplink.tls]"),
        ('[tracing]\nca = "file"', "tracing.ca has no effect without TLS"),
    ],
)
def test_the_check_of_the_settings_refuses_what_one_table_alone_does_not_show(text, says, tmp_path):
    file = tmp_path / "edge.toml"
    file.write_text(EDGE + MQTT + text)
    with pytest.raises(Misconfigured) as refused:
        check(fogline_edge.settings.load(file), file)
    assert says in str(refused.value)


def test_an_operators_password_without_a_user_is_refused(tmp_path, monkeypatch):
    file = tmp_path / "cloud.toml"
    file.write_text(f'{CLOUD}[operator]\npassword_file = "p"\ntls = {TLS}')
    monkeypatch.setattr("fogline_cloud.commands.client.operator_security.client_context", lambda *_: None)
    with pytest.raises(Misconfigured, match=r"needs operator\.user"):
        operator_security(fogline_cloud.settings.load(file).operator, "bridge")


@pytest.mark.parametrize(
    ("table", "key", "says"),
    [
        ("[uplink]", "backfill_events", "from which `backfill = newest` applies"),
        ("[rules]", "history_max_bytes", "that `keep_days` keeps"),
        ("[mqtt.websocket]", "plain", "although there is `[mqtt.tls]`"),
        ("[bridge]", "statistics_s", "for `bridge.metrics`"),
        ("[flow]", "archive", "Without effect with a local master"),
        ("[flow]", "key_cache", "if `tables` is a URL"),
        ("[flow]", "min_partitions", "if the executors have as many cores"),
    ],
)
def test_a_key_that_may_stay_where_it_does_nothing_says_so(table, key, says):
    page = (ROOT / "docs" / "reference" / "settings.md").read_text()
    section = page.split(f"### `{table}`")[1].split("\n### ")[0]
    row = next(line for line in section.splitlines() if line.startswith(f"| `{key}`"))
    assert says in row
