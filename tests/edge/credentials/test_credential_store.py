"""The keys of devices at a gateway: which one counts, when it ends, and what a damaged file means."""

import pytest

from fogline.gateway.device_credentials import DeviceCredentials, EndedKey, OscoreKey, PskKey
from fogline_edge.credentials.credential_file import FILE, LOST, CredentialFile, CredentialState, note_restored, read_state
from fogline_edge.credentials.credential_store import CredentialStore

KEY, OTHER = bytes(range(16)), bytes(range(16, 32))
NOW_MS = 1_800_000_000_000


def psk(number: int = 1, identity: str = "lamp-1", until_ms: int = 0) -> PskKey:
    return PskKey(number=number, identity=identity, key=KEY, until_ms=until_ms)


def oscore(number: int = 2, device_id: bytes = b"\x01\x02", until_ms: int = 0) -> OscoreKey:
    return OscoreKey(number=number, device_id=device_id, secret=OTHER, salt=b"salt", until_ms=until_ms)


def of(device: str, *keys: PskKey | OscoreKey, version: int = 1) -> DeviceCredentials:
    return DeviceCredentials(device=device, version=version, keys=list(keys))


def test_a_psk_identity_names_its_device_and_key():
    store = CredentialStore([of("lamp-1", psk()), of("lamp-2", psk(identity="lamp-2"))])
    assert store.psk(b"lamp-2") == ("lamp-2", psk(identity="lamp-2"))
    assert store.psk(b"lamp-3") is None
    assert store.psk(b"\xff\xfe") is None


def test_an_oscore_sender_id_may_belong_to_two_devices():
    store = CredentialStore([of("lamp-1", oscore()), of("lamp-2", oscore())])
    assert [each.device for each in store.oscore(b"\x01\x02")] == ["lamp-1", "lamp-2"]
    store.change([], ["lamp-1"])
    assert [each.device for each in store.oscore(b"\x01\x02")] == ["lamp-2"]
    store.change([], ["lamp-2"])
    assert store.oscore(b"\x01\x02") == []


def test_both_keys_of_a_rotation_count_until_the_former_ones_time_is_over():
    now = [NOW_MS]
    store = CredentialStore([of("lamp-1", psk(until_ms=NOW_MS + 5000), psk(2, "lamp-1/new"))], now_ms=lambda: now[0])
    ended: list[tuple[str, int]] = []
    store.when_ended(lambda device, number: ended.append((device, number)))
    assert store.psk(b"lamp-1") is not None
    assert store.psk(b"lamp-1/new") is not None
    assert (store.end_expired(), ended) == (5.0, [])
    now[0] += 5000
    assert store.psk(b"lamp-1") is None
    assert store.psk(b"lamp-1/new") is not None
    assert [each.number for each in store.keys("lamp-1")] == [2]
    assert (store.end_expired(), ended) == (None, [("lamp-1", 1)])


def test_revoked_keys_are_told_once_and_the_device_stays_protected():
    store = CredentialStore([of("lamp-1", psk(), oscore()), of("lamp-2", psk(identity="lamp-2"))])
    ended: list[tuple[str, int]] = []
    store.when_ended(lambda device, number: ended.append((device, number)))
    store.change([of("lamp-1", oscore(), version=2)])
    assert (ended, store.psk(b"lamp-1")) == ([("lamp-1", 1)], None)
    store.change([of("lamp-1", version=3)])
    assert ended == [("lamp-1", 1), ("lamp-1", 2)]
    assert store.is_protected("lamp-1")
    store.replace([of("lamp-1", version=3)])
    assert (ended[2:], store.is_protected("lamp-2")) == ([("lamp-2", 1)], False)


def test_the_reason_tells_a_revoked_key_from_one_whose_time_is_over_and_one_that_never_existed():
    ended = [EndedKey(number=1, kind="psk", name="lamp-1", ended_ms=NOW_MS)]
    ended.append(EndedKey(number=2, kind="oscore", name="0102", ended_ms=NOW_MS))
    other = [psk(3, "lamp-1/3", until_ms=NOW_MS), oscore(4, b"\x03\x04", until_ms=NOW_MS)]
    record = DeviceCredentials(device="lamp-1", version=5, keys=other, ended=ended)
    store = CredentialStore([record], now_ms=lambda: NOW_MS)
    revoked = "it was revoked or replaced (key {} of lamp-1, 2027-01-15T08:00:00.000000Z)"
    over = "its time is over (key {} of lamp-1, 2027-01-15T08:00:00.000000Z)"
    never = "this gateway has not heard of it, nor that it was revoked"
    assert [store.reasons.of_psk(each) for each in (b"lamp-1", b"lamp-1/3", b"lamp-1/4", b"\xff")] == [
        revoked.format(1),
        over.format(3),
        never,
        never,
    ]
    kids = (b"\x01\x02", b"\x03\x04", b"\x05\x06", b"")
    assert [store.reasons.of_oscore(each) for each in kids] == [revoked.format(2), over.format(4), never, never]
    store.change([], ["lamp-1"])
    assert store.reasons.of_psk(b"lamp-1") == never


def test_a_representation_has_no_secret():
    text = repr([of("lamp-1", psk(), oscore())])
    assert "lamp-1" in text
    for secret in (KEY, OTHER, b"salt"):
        assert repr(secret)[2:-1] not in text


def test_the_file_survives_a_restart_and_only_its_owner_reads_it(tmp_path):
    file = CredentialFile(tmp_path, "acme/gw-1")
    assert (len(file.read()), file.read().is_protected("lamp-1")) == (0, False)
    file.write([of("lamp-1", psk(), oscore())])
    store = file.read()
    assert (store.psk(b"lamp-1"), store.all) == (("lamp-1", psk()), [of("lamp-1", psk(), oscore())])
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
    assert store.digest == CredentialStore([of("lamp-1", psk(), oscore())]).digest


@pytest.mark.parametrize("content", [b"", b'{"owner": "acme/gw-1", "dev', b'{"owner": "acme/gw-2", "devices": []}', b"\xff"])
def test_a_damaged_file_opens_no_device_until_the_credentials_are_there_again(tmp_path, content):
    (tmp_path / FILE).write_bytes(content)
    file = CredentialFile(tmp_path, "acme/gw-1")
    assert file.read().is_protected("lamp-1")
    store = file.read()  # after one more restart
    assert (store.is_protected("lamp-1"), store.digest) == (True, "")
    assert (tmp_path / LOST).read_bytes() == content
    store.replace([of("lamp-2", psk(identity="lamp-2"))])
    file.write(store.all)
    assert not file.read().is_protected("lamp-1")
    assert file.read().is_protected("lamp-2")


def test_a_restored_gateway_opens_no_device_until_the_credentials_are_there(tmp_path):
    assert read_state(tmp_path) is None
    note_restored(tmp_path)
    file = CredentialFile(tmp_path, "acme/gw-1")
    assert file.read().is_protected("lamp-1")
    assert read_state(tmp_path) == CredentialState(0, 0, complete=False)
    file.write([of("lamp-1", psk(), oscore()), of("lamp-2")])
    assert read_state(tmp_path) == CredentialState(2, 2, complete=True)
    assert not file.read().is_protected("lamp-3")
    (tmp_path / FILE).write_bytes(b"{")
    assert read_state(tmp_path) == CredentialState(0, 0, complete=False)
