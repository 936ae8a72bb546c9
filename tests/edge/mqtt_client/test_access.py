"""Invalid settings are refused before any attempt to connect."""

import pytest

from fogline.errors import Misconfigured
from fogline_edge.adapters.mqtt_client.access import check_client, load_access
from fogline_edge.broker_settings import MqttClientSettings, TopicSettings
from fogline_edge.settings import load


def settings(**given):
    return MqttClientSettings(**{"name": "site", "profile": "zigbee2mqtt", **given})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"qos": 2}, "qos = 2"),
        ({"broker": "broker.lan"}, "expected host:port"),
        ({"broker": "broker.lan:0"}, "cannot be 0"),
        ({"password_file": "p"}, "password_file needs a username"),
        ({"ca_file": "ca.pem"}, "ca_file needs tls = true"),
        ({"broker": "broker.lan:1883", "username": "u", "password_file": "p"}, "set tls = true"),
        ({"topics": [TopicSettings(topic="a/{device}")]}, "only profile = 'plain'"),
        ({"base_topic": "zigbee/#"}, "base_topic"),
        ({"base_topic": "/zigbee"}, "base_topic"),
        ({"base_topic": ""}, "base_topic"),
    ],
)
def test_invalid_client_settings_are_named(given, said):
    with pytest.raises(Misconfigured, match="mqtt_clients site: ") as caught:
        check_client(settings(**given))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"broker": "broker.lan:1883"},
        {"broker": "[::1]:1883", "username": "u", "password_file": "p"},
        {"broker": "broker.lan:8883", "username": "u", "password_file": "p", "tls": True, "ca_file": "ca.pem"},
        {"base_topic": "home/zigbee2mqtt"},
    ],
)
def test_valid_client_settings_are_accepted(given):
    check_client(settings(**given))


def test_the_password_is_the_first_line_and_never_shows(folder):
    secret = folder / "secret"
    secret.write_text("pass word \nsecond line\n")
    access = load_access(settings(username="u", password_file=str(secret)))
    assert access.password == "pass word "
    assert "pass word" not in repr(access)


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "there is no "), ("", "is empty: expected a password"), ("\n", "is empty: expected a password")],
)
def test_a_password_file_that_holds_none_is_named(folder, content, said):
    secret = folder / "secret"
    if content is not None:
        secret.write_text(content)
    with pytest.raises(Misconfigured, match=said):
        load_access(settings(username="u", password_file=str(secret)))


def test_a_ca_file_that_is_none_is_named(folder):
    for given in ("missing.pem", "empty.pem"):
        (folder / "empty.pem").write_text("nothing\n")
        with pytest.raises(Misconfigured, match="ca_file"):
            load_access(settings(tls=True, ca_file=str(folder / given)))


def test_files_are_beside_the_settings_file(folder):
    path = folder / "gateway.toml"
    path.write_text(
        'tenant = "acme"\ngateway = "gw-1"\ndata = "data"\n'
        '[[mqtt_clients]]\nname = "a"\nprofile = "tasmota"\nusername = "u"\npassword_file = "secrets/a"\n'
        '[[mqtt_clients]]\nname = "b"\nprofile = "zigbee2mqtt"\ntls = true\nca_file = "/etc/ca.pem"\n'
    )
    first, second = load(path).mqtt_clients
    assert first.password_file == str(folder / "secrets/a")
    assert (second.ca_file, second.password_file) == ("/etc/ca.pem", None)


def test_two_clients_of_one_name_are_refused(folder):
    path = folder / "gateway.toml"
    entry = '[[mqtt_clients]]\nname = "a"\nprofile = "tasmota"\n'
    path.write_text('tenant = "acme"\ngateway = "gw-1"\ndata = "data"\n' + entry + entry)
    with pytest.raises(Misconfigured, match="same name"):
        load(path)
