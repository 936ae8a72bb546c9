"""Every file that a user writes may begin with a byte order mark, and end its lines as Windows does."""

import codecs
import re

import pytest

from fogline.commands.signature import make_key
from fogline.errors import Misconfigured
from fogline.process.files.settings_file import load_toml
from fogline.process.files.tls_files import TlsSettings
from fogline.process.files.user_file import read_password
from fogline_cloud.access.access_file import read_permissions
from fogline_cloud.authority.ca_folder import ROOT, CaFolder
from fogline_cloud.authority.certificates import now_utc
from fogline_cloud.bridge.door.passwords import password_line, read_passwords
from fogline_cloud.bridge.operator_files import open_signer
from fogline_cloud.cli.main import main
from fogline_cloud.commands.client.operator_security import operator_security
from fogline_cloud.devices.types_file import read_types
from fogline_cloud.flows.driver.ble_keys_file import load_keys
from fogline_cloud.kafka.connection_settings import read_secrets
from fogline_cloud.parser_kit.sample_events import read_events
from fogline_cloud.settings import CommandPolicySettings, OperatorSettings
from fogline_cloud.settings import load as load_cloud
from fogline_edge.adapters.mqtt_client.access import load_access
from fogline_edge.adapters.users import load_users
from fogline_edge.broker_settings import MqttClientSettings
from fogline_edge.profiles.ble_files import load_profile
from fogline_edge.settings import load as load_edge
from fogline_lab.credentials.mosquitto_passwords import mosquitto_line
from rules.source import PRODUCT, files

PRIVATE, _ = make_key()
EVENT = '{"device": "lamp-1", "body": "21.5"}\n'
EDGE = 'tenant = "acme"\ngateway = "gw-1"\ndata = "data"\n'


def kafka_password(path):
    """The value of a `KEY_file` of `[kafka]`."""
    config = path.with_name("cloud.toml")
    login = '"security.protocol" = "SASL_SSL"\n"sasl.mechanism" = "PLAIN"\n"sasl.username" = "alice"\n'
    config.write_text(
        f'tenant = "acme"\n[kafka]\n"bootstrap.servers" = "a:1"\n{login}"sasl.password_file" = "{path}"\n', "utf-8"
    )
    return read_secrets(load_cloud(config).kafka)["sasl.password"]


def operator_password(path):
    authority = path.with_name("authority")
    if not authority.exists():
        CaFolder.make(authority, "acme", now_utc(), 7)
    tls = TlsSettings(ca=str(authority / ROOT))
    settings = OperatorSettings(bridge="fog.example:5671", user="alice", password_file=str(path), tls=tls)
    return operator_security(settings, "fog.example").login.password


def broker_password(path):
    settings = MqttClientSettings(name="hub", profile="plain", username="alice", password_file=str(path))
    return load_access(settings).password


FILES = {
    "cloud.toml": ('tenant = "acme"\n', lambda path: load_cloud(path, kafka=False)),
    "edge.toml": (EDGE, load_edge),
    "access.toml": ('[[operator]]\nname = "alice"\ndevices = ["*"]\n', lambda path: read_permissions(str(path))._file),
    "devices.types": ("[lamp.switch]\ntype = 'object'\n", lambda path: read_types(str(path))),
    "--commands": ("[switch]\ntype = 'object'\n", lambda path: load_toml(path, "--commands")),
    "bridge.users": (f"{password_line('alice', 'secret')}\n", lambda path: read_passwords(str(path))),
    "operator.password_file": ("secret\n", operator_password),
    "kafka KEY_file": ("secret\n", kafka_password),
    "mqtt.users": (f"{mosquitto_line('lamp-1', b'secret')}\n", lambda path: load_users(path, "mqtt.users")._secrets),
    "mqtt_clients.password_file": ("secret\n", broker_password),
    "commands.signing_key": (f"{PRIVATE}\n", lambda path: bool(open_signer(CommandPolicySettings(signing_key=str(path))))),
    "ble.profiles": ("name = 'mine'\nchannel = 'mine'\n[[recognise]]\nservice_data = 'fcd2'\n", load_profile),
    "flow.ble_keys": (f'"lamp-1" = "{"0" * 32}"\n', lambda path: load_keys(str(path)).find("lamp-1", None)),
    "events of parser test": (EVENT, read_events),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("line_end", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_a_file_with_a_byte_order_mark_is_read_like_one_without(folder, name, line_end):
    text, read = FILES[name]
    path = folder / f"file{'.toml' if ' = ' in text or '[' in text else ''}"
    path.write_text(text, "utf-8")
    path.chmod(0o600)
    expected = read(path)
    path.write_bytes(codecs.BOM_UTF8 + text.replace("\n", line_end).encode())
    found = read(path)
    assert found == expected
    assert found


def test_user_set_keeps_the_users_of_a_file_with_a_byte_order_mark(folder):
    users = folder / "users"
    users.write_bytes(codecs.BOM_UTF8 + f"{password_line('alice', 'secret')}\r\n".encode())
    users.chmod(0o600)
    (folder / "cloud.toml").write_text(
        'tenant = "acme"\n[bridge]\nusers = "users"\n[bridge.tls]\nca = "a"\ncertificate = "b"\nkey = "c"\n'
    )
    assert main(["user", "set", "bob", "--config", str(folder / "cloud.toml")]) == 0
    assert set(read_passwords(str(users))) == {"alice", "bob"}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "operator.password_file: there is no "),
        ("pässword".encode("utf-16"), "is not UTF-8 text: save it as UTF-8"),
        (b"", "is empty: expected a password"),
        (b"\xef\xbb\xbf\r\nsecret", "is empty: expected a password"),
    ],
    ids=["missing", "utf-16", "empty", "empty line"],
)
def test_a_password_that_cannot_be_read_is_named_by_its_setting(folder, content, says):
    path = folder / "password"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(Misconfigured, match=f"^operator.password_file: .*{re.escape(says.rpartition(': ')[2])}") as error:
        read_password(path, "operator.password_file")
    assert says in str(error.value)


def test_files_of_users_are_read_by_one_function():
    """UTF-8 texts that the product reads otherwise are its own resources."""
    reads = re.compile(r"read_text\(\s*(encoding=)?[\"']utf|read_text\(\)|open\([^)]*[\"']r[\"']")
    found = [
        f"{file.path}: {line.strip()}"
        for file in files(*PRODUCT)
        for line in file.text.splitlines()
        if reads.search(line) and "resources.files(" not in line and not file.path.endswith("process/files/user_file.py")
    ]
    assert not found, "call fogline.process.files.user_file.read_text:\n" + "\n".join(found)
