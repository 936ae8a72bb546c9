"""Security contexts in use: their bounds, and the gateway's own sequence numbers."""

from collections.abc import Callable

from fogline.gateway.device_credentials import DeviceCredentials, OscoreKey
from fogline_edge.adapters.coap.oscore import context_table
from fogline_edge.adapters.coap.oscore.context_table import MAX_WAITING, RESERVED, ContextTable
from fogline_edge.adapters.coap.oscore.object_security import ObjectSecurity
from fogline_edge.credentials.credential_store import CredentialStore

NOW_S = 1_800_000_000.0


class Disk:
    """The part of a port that keeps values; it commits when it is told to."""

    tenant, gateway = "acme", "gw-1"

    def __init__(self, kept: dict[str, bytes] | None = None) -> None:
        self.values = kept if kept is not None else {}
        self.waiting: list[Callable[[], None]] = []

    def keep(self, key: str, value: bytes | None, done: Callable[[], None]) -> None:
        def commit() -> None:
            if value is None:
                self.values.pop(key, None)
            else:
                self.values[key] = value
            done()

        self.waiting.append(commit)

    def kept(self, prefix: str) -> dict[str, bytes]:
        return {key: value for key, value in self.values.items() if key.startswith(prefix)}

    def commit(self) -> None:
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            each()


def table(disk: Disk, devices: int = 1, now_s: float = NOW_S) -> ContextTable:
    keys = CredentialStore(
        DeviceCredentials(device=f"d{n}", version=1, keys=[OscoreKey(number=1, device_id=n.to_bytes(2), secret=n.to_bytes(16))])
        for n in range(devices)
    )
    return ContextTable(disk, keys, lambda: now_s)  # type: ignore[arg-type]


def option(number: int = 0) -> ObjectSecurity:
    return ObjectSecurity(b"\x01", number.to_bytes(2))


def used(contexts: ContextTable, disk: Disk, count: int) -> list[int]:
    """Own numbers, as they are used."""
    (live,) = contexts.find(option())
    found = []
    for _ in range(count):
        contexts.when_reserved(live, lambda: found.append(int.from_bytes(live.own_piv() or b"")))
        disk.commit()
    return found


def test_the_latest_contexts_are_remembered_and_a_forgotten_one_is_challenged(monkeypatch):
    monkeypatch.setattr(context_table, "MAX_CONTEXTS", 2)
    contexts = table(Disk(), devices=3)
    (first,) = contexts.find(option(0))
    (second,) = contexts.find(option(1))
    echo = first.challenge(b"\x01", b"content")
    assert contexts.find(option(0)) == [first]
    contexts.find(option(2))
    assert len(contexts) == 2
    assert contexts.find(option(0)) == [first]
    assert contexts.find(option(1)) != [second]  # it was quiet for longest
    contexts.find(option(2))
    (again,) = contexts.find(option(0))
    assert again.window is None
    assert again.challenged(echo, b"content") is None  # an old answer does not open the new context


def test_an_answer_to_a_challenge_is_for_the_same_content_and_names_the_first_number():
    (live,) = table(Disk()).find(option())
    echo = live.challenge(b"\x05", b"content")
    assert live.challenged(echo, b"content") == b"\x05"
    for wrong, content in ((echo, b"other"), (echo[:-1], b"content"), (b"\x06" + echo[1:], b"content"), (b"", b"content")):
        assert live.challenged(wrong, content) is None


def test_no_own_number_is_used_before_its_reservation_is_on_the_disk():
    disk = Disk()
    contexts = table(disk)
    (live,) = contexts.find(option())
    called: list[int] = []
    contexts.when_reserved(live, lambda: called.append(1))
    assert (called, live.own_piv()) == ([], None)
    disk.commit()
    assert called == [1]
    assert live.own_piv() is not None


def test_own_numbers_grow_over_power_cuts_and_over_a_restored_backup():
    disk = Disk()
    numbers = used(table(disk), disk, 3 * RESERVED)
    assert numbers == sorted(set(numbers))
    backup = dict(disk.values)
    after = used(table(disk), disk, 3)  # a power cut: the memory is gone
    assert after[0] > numbers[-1]
    restored = Disk(backup)
    later = used(table(restored, now_s=NOW_S + 3600), restored, 3)  # the backup is an hour old
    assert later[0] > after[-1]


def test_challenges_that_wait_for_the_disk_are_bounded():
    disk = Disk()
    contexts = table(disk)
    (live,) = contexts.find(option())
    called: list[int] = []
    for n in range(MAX_WAITING + 10):
        contexts.when_reserved(live, lambda n=n: called.append(n))
    assert len(disk.waiting) == 1
    disk.commit()
    assert called == list(range(MAX_WAITING))


def test_a_key_that_ended_leaves_nothing_behind():
    disk = Disk()
    contexts = table(disk)
    used(contexts, disk, 1)
    assert list(disk.values) == ["oscore/d0/1"]
    contexts.ended("d0", 1)
    disk.commit()
    assert (disk.values, len(contexts)) == ({}, 0)


def test_a_context_is_for_this_gateway_and_the_newest_key_serves_commands():
    contexts = table(Disk(), devices=2)
    assert contexts.find(ObjectSecurity(b"\x01", b"\0\0", b"gw-1")) != []
    assert contexts.find(ObjectSecurity(b"\x01", b"\0\0", b"gw-2")) == []
    found = contexts.of_device("d1")
    assert found is not None
    assert (found.device, contexts.of_device("d9")) == ("d1", None)
