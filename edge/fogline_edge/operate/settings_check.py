"""Checks the rules that the settings' types cannot express, and what the settings need on this machine."""

import sys
from importlib.util import find_spec
from pathlib import Path

from fogline.commands.signature import read_keys
from fogline.errors import Misconfigured
from fogline.gateway.message_signature import GatewayName
from fogline.process.files.settings_file import require_loopback, split_endpoint
from fogline.tracing.settings import collector_address
from fogline_edge.adapters.ble.roster import read_settings
from fogline_edge.adapters.coap.access import check_coap
from fogline_edge.adapters.http.access import check_http
from fogline_edge.adapters.mqtt.hono.event_filters import covers
from fogline_edge.adapters.mqtt.server.listener import check_mqtt
from fogline_edge.adapters.mqtt_client.access import check_client
from fogline_edge.operate.renewal import read_times
from fogline_edge.rules.actions import action_key
from fogline_edge.rules.event_rules import rules_of
from fogline_edge.settings import EdgeSettings
from fogline_edge.uplink.way import require_bridge, way_to


def check(settings: EdgeSettings, config: Path | None = None) -> None:
    """Check what the settings' types cannot express. Raises `Misconfigured`, which names `config`, the settings file."""
    try:
        _check(settings)
    except Misconfigured as error:
        raise (error if config is None else Misconfigured(f"{config}: {error}")) from None


def _check(settings: EdgeSettings) -> None:
    for bridge in settings.uplink.bridges:
        way_to(bridge, settings.uplink, GatewayName(settings.tenant, settings.gateway))
    if settings.uplink.renew:
        require_bridge(settings.uplink, "uplink.renew")
        if settings.uplink.tls is None or settings.uplink.tls.certificate is None:
            raise Misconfigured("uplink.renew needs [uplink.tls]")
        read_times(settings.uplink.tls.certificate)
    if settings.metrics is not None:
        require_loopback(split_endpoint(settings.metrics, "metrics")[0], "metrics")
    read_keys(settings.commands.keys, "commands.keys")
    if settings.tracing is not None:
        collector_address(settings.tracing)
    rules_of(settings.rules)
    _check_adapters(settings)
    _check_topics(settings)


def _check_adapters(settings: EdgeSettings) -> None:
    if settings.mqtt is not None:
        check_mqtt(settings.tenant, settings.mqtt)
    if settings.coap is not None:
        check_coap(settings.coap)
    if settings.http is not None:
        check_http(settings.http)
    for each in settings.mqtt_clients:
        check_client(each)
    if settings.ble is not None:
        require_bluetooth()
        read_settings(settings.ble)
    if not (settings.mqtt or settings.coap or settings.http or settings.ble or settings.mqtt_clients):
        raise Misconfigured("no adapter is configured: add [mqtt], [coap], [http], [ble] or [[mqtt_clients]] to the settings")


def _check_topics(settings: EdgeSettings) -> None:
    """Raise `Misconfigured` for a rule's topic that no subscriber may read."""
    subscribers = settings.mqtt.subscribers if settings.mqtt is not None else {}
    filters = [each for rights in subscribers.values() for each in rights]
    for table in settings.rules.react:
        for number, action in enumerate(table.then, 1):
            if action.topic is not None and not any(covers(each, action.topic) for each in filters):
                example = f'viewer = ["{action.topic}"]'
                raise Misconfigured(
                    f"{action_key(table, number)}: no user of [mqtt.subscribers] may read topic {action.topic}: "
                    f"add one, for example {example}"
                )


def require_bluetooth() -> None:
    """Raise `Misconfigured` if Bluetooth is impossible here: it needs Linux with BlueZ, and bleak."""
    if sys.platform != "linux":
        raise Misconfigured("Bluetooth needs Linux with BlueZ; remove [ble] from the settings")
    missing = [name for name in ("bleak", "bleak_retry_connector", "dbus_fast") if find_spec(name) is None]
    if missing:
        raise Misconfigured(f"Bluetooth needs {', '.join(missing)}: pip install fogline-edge")
