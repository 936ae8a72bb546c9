"""The password file."""

import base64

import pytest

from fogline.errors import Misconfigured
from fogline_edge.adapters.users import load_users
from fogline_lab.credentials.mosquitto_passwords import mosquitto_line


@pytest.fixture
def users(folder):
    def users(*lines):
        path = folder / "users"
        path.write_text("\n".join(lines) + "\n")
        return load_users(path, "mqtt.users")

    return users


def test_a_hash_from_elsewhere_is_understood(users):
    """PBKDF2-HMAC-SHA512 of "password" with salt "salt", one iteration: a widely published test vector."""
    hashed = bytes.fromhex(
        "867f70cf1ade02cff3752599a3a53dc4af34c7a669815ae5d513554e1c8cf252"
        "c02d470a285a0501bad999bfe943c08f050235d7d68b1da55e63f73b60a57fce"
    )
    found = users(f"d1:$7$1${base64.b64encode(b'salt').decode()}${base64.b64encode(hashed).decode()}")
    assert found.verify("d1", b"password")


def test_a_user_may_have_a_name_of_any_script(users):
    found = users(mosquitto_line("küche", b"one"), mosquitto_line("厨房@acme", b"two"))
    assert found.verify("küche", b"one")
    assert found.verify("厨房@acme", b"two")
    assert not found.verify("kuche", b"one")


def test_only_the_right_password_of_a_known_name_is_let_in(users):
    found = users("# people", "", mosquitto_line("d1", b"one"), mosquitto_line("d2", b"two", 1000))
    assert found.verify("d1", b"one")
    assert found.verify("d2", b"two")
    assert not found.verify("d1", b"two")
    assert not found.verify("d1", b"")
    assert not found.verify("d3", b"one")
    assert not found.verify("", b"one")
    assert len(found._secrets) == 2


def test_a_name_may_be_written_with_its_tenant(users):
    found = users(mosquitto_line("d1", b"one"), mosquitto_line("d2@acme", b"two"))
    assert found.verify("d1@acme", b"one")
    assert found.verify("d2@acme", b"two")
    assert not found.verify("d2", b"two")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("d1:$6$c2FsdA==$aGFzaA==", r"\$6\$ hashes are too easy.*mosquitto_passwd -H sha512-pbkdf2"),
        ("d1:$argon2id$v=19$m=1,t=1,p=1$c2FsdA$aGFzaA", "not a .* hash"),
        ("d1:secret", "not a .* hash"),
        ("d1", "name:hash"),
        ("d1:$7$x$c2FsdA==$aGFzaA==", "is unreadable"),
        ("d1:$7$101$c2FsdA==$aGFzaA==", "is unreadable"),
        ("d1:$7$101$???$aGFzaA==", "is unreadable"),
        ("@acme:$7$101$c2FsdA==$aGFzaA==", "user '' is empty"),
        ("", "has no user. Add one: mosquitto_passwd -H sha512-pbkdf2 "),
    ],
)
def test_error_of_the_password_file_is_one_line(users, text, said):
    with pytest.raises(Misconfigured, match=said) as caught:
        users(text)
    assert "\n" not in str(caught.value)


def test_a_name_stands_there_once(users):
    with pytest.raises(Misconfigured, match="line 2: d1 occurs twice"):
        users(mosquitto_line("d1", b"one"), mosquitto_line("d1", b"two"))


def test_a_file_that_is_not_there_is_said(folder):
    with pytest.raises(Misconfigured, match=r"mqtt.users: there is no .*nobody"):
        load_users(folder / "nobody", "mqtt.users")
