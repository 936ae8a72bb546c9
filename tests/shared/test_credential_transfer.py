"""Keys of devices on the way to a gateway: nobody in between reads, changes, repeats or makes them."""

import pytest
from msgspec.structs import replace

from fogline.amqp.wire import decode, encode
from fogline.commands.signature import Signer, TrustedKeys, make_key, read_keys, read_signer
from fogline.errors import Poison
from fogline.gateway.credential_transfer import CredentialOpener, CredentialSealer, CredentialUpdate, is_credentials
from fogline.gateway.device_credentials import DeviceCredentials, PskKey
from fogline.gateway.message_signature import GatewayName

NAME = GatewayName("acme", "gw-1")
SECRET = b"secret-secret-secret"
UPDATE = CredentialUpdate(
    devices=[DeviceCredentials(device="lamp-1", version=3, keys=[PskKey(number=1, identity="lamp-1", key=SECRET)])]
)


def pair(signer=None, keys=None, name=NAME):
    opener = CredentialOpener(NAME, keys or TrustedKeys())
    return CredentialSealer(name, opener.public_key, signer or Signer()), opener


def test_an_update_arrives_as_it_was_and_is_unreadable_on_the_way():
    sealer, opener = pair()
    for update in (CredentialUpdate(offer="x"), UPDATE, CredentialUpdate(gone=["lamp-1"], whole=True, more=True)):
        data = encode(sealer.seal(update))
        assert SECRET not in data
        assert b"lamp-1" not in data
        message = decode(data)
        assert is_credentials(message)
        assert opener.open(message) == update


def test_each_message_opens_once_in_its_order_and_only_on_its_connection():
    sealer, opener = pair()
    first, second = sealer.seal(UPDATE), sealer.seal(UPDATE)
    with pytest.raises(Poison, match="not number 1"):
        opener.open(second)
    opener.open(first)
    with pytest.raises(Poison, match="not number 2"):
        opener.open(first)
    opener.open(second)
    for other in (CredentialOpener(NAME, TrustedKeys()), CredentialOpener(GatewayName("acme", "gw-2"), TrustedKeys())):
        with pytest.raises(Poison, match="changed on the way, or is for another connection"):
            other.open(first)


def test_a_changed_message_is_refused():
    sealer, opener = pair()
    message = sealer.seal(UPDATE)
    for changed in (
        replace(message, body=message.body[:-1] + bytes((message.body[-1] ^ 1,))),
        replace(message, body=b""),
        replace(message, properties={**message.properties, "key": bytes(32)}),
        replace(message, properties={**message.properties, "key": b"short"}),
        replace(message, properties={**message.properties, "number": 2}),
        replace(message, properties={"fogline": "credentials"}),
    ):
        with pytest.raises(Poison):
            opener.open(changed)
    assert opener.open(message) == UPDATE


def test_a_gateway_with_keys_takes_only_what_one_of_them_signed():
    private, public = make_key()
    signer, keys = read_signer("k1", private, "x"), read_keys({"k1": public}, "x")
    sealer, opener = pair(signer, keys)
    assert opener.open(sealer.seal(UPDATE)) == UPDATE
    for stranger in (Signer(), read_signer("k1", make_key()[0], "x"), read_signer("k2", private, "x")):
        sealer, opener = pair(stranger, keys)  # a router that makes a message of its own
        with pytest.raises(Poison, match="not trusted"):
            opener.open(sealer.seal(UPDATE))


@pytest.mark.parametrize("key", ["", "x", "c2hvcnQ="])
def test_a_public_key_of_hello_that_is_none_is_poison(key):
    with pytest.raises(Poison, match="32 bytes"):
        CredentialSealer(NAME, key, Signer())
