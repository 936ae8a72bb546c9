"""Changes of the keys of a device, and their sealing."""

import json

import pytest

from fogline.errors import Misconfigured, Poison
from fogline.gateway.device_credentials import MAX_ENDED, MAX_KEYS, PskKey
from fogline_cloud.credentials.credential_record import credentials_of, open_record, seal_record
from fogline_cloud.credentials.credential_table import CredentialTable
from fogline_cloud.credentials.key_edits import (
    ADD,
    REVOKE,
    ROTATE,
    KeyEdit,
    NewOscore,
    NewPsk,
    apply_key_edit,
    check_key_edit,
    described,
)
from fogline_cloud.credentials.vault import Vault, make_vault_key, read_vault

NOW_MS = 1_800_000_000_000
SECRET, OTHER = "c2VjcmV0LXNlY3JldC1zZWNyZXQ=", "b3RoZXItb3RoZXItb3RoZXItb3RoZXI="


def psk(identity="lamp-1", key=SECRET):
    return {"kind": "psk", "identity": identity, "key": key}


def oscore(device_id="AQI=", secret=SECRET):
    return {"kind": "oscore", "device_id": device_id, "secret": secret}


def edit(action, **body):
    return KeyEdit("lamp-1", action, "client acme/alice", json.dumps(body).encode())


def changed(current, action, now_ms=NOW_MS, **body):
    return apply_key_edit(edit(action, **body), current, now_ms)


def test_a_key_gets_a_number_that_no_other_key_of_the_device_ever_had():
    one = changed(None, ADD, key=psk())
    two = changed(one, ADD, key=oscore())
    three = changed(changed(two, REVOKE, number=2), ADD, key=oscore())
    assert [[each.number for each in record.keys] for record in (one, two, three)] == [[1], [1, 2], [1, 3]]
    assert [record.version for record in (one, two, three)] == [1, 2, 4]


def test_a_copy_of_the_message_changes_nothing():
    one = changed(None, ADD, key=psk())
    assert changed(one, ADD, key=psk()) is one
    two = changed(one, ROTATE, key=psk("lamp-1/2", OTHER), overlap_s=60)
    assert changed(two, ROTATE, NOW_MS + 5000, key=psk("lamp-1/2", OTHER), overlap_s=60) is two
    three = changed(two, REVOKE, number=1)
    assert changed(three, REVOKE, number=1) is three
    assert changed(None, REVOKE, unprotect=True) is None


def test_rotation_ends_the_former_keys_of_its_kind_after_the_overlap():
    both = changed(changed(None, ADD, key=psk()), ADD, key=oscore())
    rotated = changed(both, ROTATE, key=psk("lamp-1/2", OTHER), overlap_s=60)
    assert [(each.number, each.until_ms) for each in rotated.keys] == [(1, NOW_MS + 60_000), (2, 0), (3, 0)]
    again = changed(rotated, ROTATE, key=psk("lamp-1/3", "dGhpcmQtdGhpcmQtdGhpcmQ="), overlap_s=120)
    assert [(each.number, each.until_ms) for each in again.keys] == [
        (1, NOW_MS + 60_000),
        (2, 0),
        (3, NOW_MS + 120_000),
        (4, 0),
    ]
    later = changed(again, ADD, NOW_MS + 90_000, key=oscore("AwQ="))
    assert [each.number for each in later.keys] == [2, 3, 4, 5]
    at_once = changed(both, ROTATE, key=psk("lamp-1/2", OTHER))
    assert [each.number for each in at_once.keys] == [2, 3]


def test_a_record_tells_of_the_latest_keys_that_were_revoked_replaced_or_whose_time_was_over():
    record = changed(changed(None, ADD, key=psk()), ADD, key=oscore())
    record = changed(record, ROTATE, key=psk("lamp-1/3", OTHER), overlap_s=60)
    record = changed(record, REVOKE, NOW_MS + 1000, number=2)
    record = changed(record, ADD, NOW_MS + 90_000, key=oscore("AwQ="))
    assert [(each.number, each.kind, each.name, each.ended_ms - NOW_MS) for each in record.ended] == [
        (2, "oscore", "0102", 1000),
        (1, "psk", "lamp-1", 60_000),
    ]
    for _ in range(MAX_ENDED):
        record = changed(changed(record, REVOKE), ADD, key=psk())
    assert len(record.ended) == MAX_ENDED
    assert [each.number for each in record.ended] == list(range(record.last - MAX_ENDED, record.last))
    assert credentials_of("lamp-1", record).ended == record.ended
    assert "secret" not in repr(record.ended)


@pytest.mark.parametrize(
    ("action", "body", "says"),
    [
        (ADD, {"key": psk("lamp-2")}, "the identity of a key is lamp-1"),
        (ADD, {"key": psk("lamp-1x")}, "the identity of a key is lamp-1"),
        (ADD, {"key": psk(key=OTHER)}, "identity lamp-1 is in use"),
        (ADD, {"key": psk(key="c2hvcnQ=")}, "base64 of at least 16 bytes"),
        (ADD, {"key": oscore("AA==")}, "base64 of at least 2 bytes"),
        (ADD, {"key": {"kind": "rpk"}}, "kind"),
        (ROTATE, {"key": oscore()}, "has no key of this kind"),
        (ROTATE, {"key": psk("lamp-1/2", OTHER), "overlap_s": 10**9}, "overlap_s"),
        (REVOKE, {"number": 2}, "device lamp-1 has no key 2"),
        (REVOKE, {"number": 1, "unprotect": True}, "only if all of its keys"),
        (REVOKE, {"all": True}, "unknown field `all`"),
        ("set", {}, "'set' is not an action for keys"),
    ],
    ids=str,
)
def test_a_wrong_change_is_one_sentence_without_the_secret(action, body, says):
    one = changed(None, ADD, key=psk())
    with pytest.raises(Poison) as error:
        changed(one, action, **body)
    assert says in str(error.value)
    for secret in (SECRET, OTHER):
        assert secret not in str(error.value)


def test_a_device_has_a_bounded_number_of_keys():
    record = None
    for number in range(MAX_KEYS):
        record = changed(record, ADD, key=psk(f"lamp-1/{number}"))
    with pytest.raises(Poison, match="may have 8 keys"):
        changed(record, ADD, key=psk("lamp-1/9"))


def test_no_representation_and_no_word_for_the_audit_has_a_secret():
    record = changed(changed(None, ADD, key=psk()), ADD, key=oscore())
    texts = [repr(edit(ADD, key=psk())), repr(check_key_edit(edit(ADD, key=psk()))), repr(record), described(record)]
    assert described(record) == "version 2, keys: 1 psk lamp-1, 2 oscore 0102"
    for text in texts:
        assert "secret" not in text.replace("secret=", "")
        assert SECRET not in text
    assert "secret" not in repr(NewPsk(identity="x", key=b"secret-secret-16")) + repr(
        NewOscore(device_id=b"ab", secret=b"secret-secret-16")
    )


def test_sealed_keys_open_only_in_their_place_and_with_their_key():
    old, new = bytes(32), bytes(range(32))
    record = changed(None, ADD, key=psk())
    sealed = seal_record(Vault("acme", [old]), "lamp-1", record)
    assert b"secret" not in sealed
    assert open_record(Vault("acme", [new, old]), "lamp-1", sealed) == record
    for vault, device, value in (
        (Vault("acme", [new]), "lamp-1", sealed),
        (Vault("acme", [old]), "lamp-2", sealed),
        (Vault("other", [old]), "lamp-1", sealed),
        (Vault("acme", [old]), "lamp-1", sealed[:-1] + bytes((sealed[-1] ^ 1,))),
        (Vault("acme", [old]), "lamp-1", sealed[:10]),
    ):
        with pytest.raises(Poison, match="sealed"):
            open_record(vault, device, value)


def test_a_table_that_cannot_open_a_record_says_so():
    vault = Vault("acme", [bytes(32)])
    sealed = seal_record(vault, "lamp-1", changed(None, ADD, key=psk()))
    table = CredentialTable(Vault("acme", [bytes(range(32))]))
    assert (table.problem, table.apply(b"lamp-1", sealed)) == ("", "lamp-1")
    assert table.problem == "the keys of 1 devices cannot be opened, first those of lamp-1"
    assert "no devices.credentials_key" in _filled(CredentialTable(None), sealed).problem
    good = _filled(CredentialTable(vault), sealed)
    assert (good.problem, good.credentials("lamp-1")) == ("", credentials_of("lamp-1", changed(None, ADD, key=psk())))
    assert isinstance(good.credentials("lamp-1").keys[0], PskKey)
    assert (good.apply(b"not a name", sealed), good.apply(b"lamp-1", b""), len(good)) == ("", "lamp-1", 0)


def _filled(table, sealed):
    table.apply(b"lamp-1", sealed)
    return table


def test_the_file_of_the_vault_is_private_and_has_whole_keys(tmp_path):
    file = tmp_path / "credentials.key"
    with pytest.raises(Misconfigured, match="fogline device credentials key"):
        read_vault("acme", str(file))
    file.write_text(f"{make_vault_key()}\n{make_vault_key()}\n")
    file.chmod(0o644)
    with pytest.raises(Misconfigured, match="chmod 600"):
        read_vault("acme", str(file))
    file.chmod(0o600)
    read_vault("acme", str(file))
    for wrong in ("", "c2hvcnQ=\n"):
        file.write_text(wrong)
        with pytest.raises(Misconfigured, match=r"devices\.credentials_key"):
            read_vault("acme", str(file))
