"""Keys of the gateway's settings that another key switches off."""

from collections.abc import Callable, Mapping
from typing import Any

from fogline.process.files.unused_settings import Unused
from fogline.process.files.via_settings import IN_CLEAR_TEXT

_Table = Mapping[str, Any]


def _other_profile(profile: str) -> Callable[[_Table], bool]:
    return lambda table: table["profile"] != profile


def _only_tls(table: _Table) -> bool:
    plain_websocket = table.get("websocket", {}).get("plain", False)
    return "tls" in table and "port" not in table and not plain_websocket


def _only_dtls(table: _Table) -> bool:
    return "dtls" in table and "port" not in table and not table.get("oscore", False)


def _no_login(table: _Table) -> bool:
    return "users" not in table and "ca" not in table.get("tls", {})


_OF_PROFILE = "it is for another `profile`. Remove it"


def _not_plain(name: str, tls: str) -> str:
    return f"with [{name}.{tls}] and without {name}.port nothing listens in clear text. Remove it, or set {name}.port"


UNUSED = (
    Unused("uplink", "bridge", lambda table: "via" in table, "the gateway connects to [uplink.via]. Remove one of the two"),
    Unused(
        "uplink.via",
        "tls",
        lambda table: table["url"].startswith(IN_CLEAR_TEXT),
        "uplink.via.url is without TLS. Write amqps:// or wss://, or remove the table",
    ),
    *(
        Unused(name, "host", when, f"{_not_plain(name, tls)}. The address with TLS is {name}.{tls}.host")
        for name, tls, when in (("mqtt", "tls", _only_tls), ("http", "tls", _only_tls), ("coap", "dtls", _only_dtls))
    ),
    *(
        Unused(name, "plain_on_lan", when, _not_plain(name, tls))
        for name, tls, when in (("mqtt", "tls", _only_tls), ("http", "tls", _only_tls), ("coap", "dtls", _only_dtls))
    ),
    Unused("mqtt", "subscribers", _no_login, "it names users, and nobody logs in. Set mqtt.users or mqtt.tls.ca"),
    Unused("mqtt_clients", "base_topic", _other_profile("zigbee2mqtt"), _OF_PROFILE),
    Unused("mqtt_clients", "full_topic", _other_profile("tasmota"), _OF_PROFILE),
    Unused("mqtt_clients", "topic_prefix", _other_profile("shelly"), _OF_PROFILE),
    Unused(
        "mqtt_clients",
        "command_timeout_s",
        lambda table: not table.get("send_commands", False),
        "no commands are sent. Set send_commands = true, or remove it",
    ),
    Unused("ble", "power_on_s", lambda table: not table.get("power_on", True), "power_on = false. Remove one of the two"),
)
"""All such keys."""
