"""A wrong settings file is an error that names the file, the key, and what was expected."""

import pytest

from fogline.errors import Misconfigured
from fogline.process.files.settings_file import require_loopback, split_endpoint
from fogline_cloud import settings as cloud
from fogline_edge import settings as edge

EDGE = 'tenant = "acme"\ngateway = "gw-1"\ndata = "data"\n'


def test_a_byte_order_mark_of_an_editor_is_ignored(folder):
    path = folder / "edge.toml"
    path.write_text(EDGE, "utf-8-sig")
    assert edge.load(path).tenant == "acme"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (EDGE + "nonsense = 1", "unknown key `nonsense`"),
        (EDGE + "[mqtt]\nprot = 1883", "unknown key `prot` in [mqtt]"),
        (EDGE + '[mqtt]\nport = "x"', "key `mqtt.port`: "),
        (EDGE + "[mqtt]\nport = 70000", "key `mqtt.port`: "),
        (EDGE + '[[mqtt.topics]]\nlane = "telemetry"', "missing key `topic` in [mqtt.topics[0]]"),
        (EDGE + '[[mqtt.topics]]\ntopic = "a/{device}"\ncontent_type = "text plain"', "key `mqtt.topics[0]`: "),
        (EDGE + '[[coap.paths]]\npath = "a/{device}"\ncontent_type = "text plain"', "'text plain' is not a media type"),
        (EDGE + '[outbox]\nwhen_full = { reply = "drop_oldest" }', "not 'reply'"),
        (EDGE + '[outbox]\nwhen_full = { alarm = "drop" }', "not 'drop'"),
        (EDGE + '[outbox]\nwhen_expired = { alarm = "drop_oldest" }', "not 'drop_oldest'"),
        (EDGE + '[uplink]\nbackfill = { bulk = "first" }', "not 'first'"),
        ('tenant = "acme"\ndata = "d"', "missing key `gateway`"),
        ('tenant = "a/b"\ngateway = "g"\ndata = "d"', "key `tenant`: "),
        ("= nonsense", "not TOML"),
    ],
)
def test_a_wrong_key_is_named(folder, text, says):
    path = folder / "edge.toml"
    path.write_text(text)
    with pytest.raises(Misconfigured) as caught:
        edge.load(path)
    assert says in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(folder):
    with pytest.raises(Misconfigured, match=r"settings: there is no .*Name another file with --config"):
        edge.load(folder / "none.toml")


def test_kafka_needs_an_address(folder):
    path = folder / "cloud.toml"
    path.write_text('tenant = "acme"\n[kafka]\n')
    with pytest.raises(Misconfigured, match=r"bootstrap\.servers"):
        cloud.load(path)


def test_folders_are_beside_the_file(folder):
    path = folder / "edge.toml"
    path.write_text(EDGE + '[mqtt]\nusers = "passwd"')
    assert edge.load(path).data == str(folder / "data")
    assert edge.load(path).mqtt.users == str(folder / "passwd")


@pytest.mark.parametrize("text", ["", "host", "host:", "host:x", "host:99999", ":1", "a..b:1", "two words:1", "fog\n:1"])
def test_an_address_that_is_none(text):
    with pytest.raises(Misconfigured, match="host:port"):
        split_endpoint(text, "uplink.bridge")


def test_without_credentials_only_loopback():
    assert require_loopback("127.0.0.1", "x") == "127.0.0.1"
    with pytest.raises(Misconfigured, match="only loopback"):
        require_loopback("0.0.0.0", "x")
