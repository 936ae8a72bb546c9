"""The log of messages in the file: what a restart at any point recognises, and how much room it takes."""

import tracemalloc
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from edge.outbox.stores import LARGE, copy_file, open_store, resends, roll_back, take
from fogline.events.event import Arrival, Receipt
from fogline.events.identity import Retransmission
from fogline_edge.outbox.file.schema import open_database
from fogline_edge.outbox.memory import resend_memory as module
from fogline_edge.outbox.memory.resend_memory import ENTRY, LEAST_ENTRIES, SHARE, ResendMemory
from fogline_edge.outbox.rows import streams as streams_module
from fogline_edge.outbox.writer.store import OutboxStore
from fogline_lab.events import make_arrival

IDS = 65_535


def message(n: int, *, client: bytes = b"client", number: int | None = None, device: str = "lamp-1") -> Arrival:
    sent = Retransmission(client, again=False, number=n if number is None else number)
    return make_arrival(n, device=device, retransmission=sent)


def again(arrival: Arrival) -> Arrival:
    return replace(arrival, retransmission=replace(arrival.retransmission, again=True))


def known(store: OutboxStore, arrival: Arrival) -> bool:
    """Return True if the store recognises the arrival as a resend. The store does not change."""
    sent = again(arrival).retransmission
    return resends(store).repeats(arrival, sent, store.age.s)


def forget(store: OutboxStore, arrival: Arrival) -> None:
    """Free the id of a message, as a client's PUBREL does."""
    sent = arrival.retransmission
    with store.transaction():
        resends(store).forget(sent.slot, sent.number)


def log_bytes(connection) -> int:
    (size,) = connection.execute("SELECT total(length(entries)) FROM resend").fetchone()
    return int(size)


@pytest.fixture
def path(memory) -> Path:
    return memory / "outbox.db"


class Clients:
    """Clients with few ids, which they use again and again; `last`: the message of each id that is in use."""

    def __init__(self, path: Path, seed: int) -> None:
        self.random = Random(seed)
        self.path = path
        self.store = open_store(path)
        self.last: dict[tuple[bytes, int], Arrival] = {}
        self.free: dict[tuple[bytes, int], Arrival] = {}
        self.n = 0

    def send(self) -> None:
        many = [self._message() for _ in range(self.random.choice((1, 3, 30)))]
        self._note(many)
        assert set(take(self.store, *many)) == {Receipt.STORED}

    def _message(self) -> Arrival:
        self.n += 1
        client, device = b"client-%d" % self.random.randrange(4), f"lamp-{self.random.randrange(3)}"
        return message(self.n, client=client, number=self.random.randrange(50), device=device)

    def _note(self, messages: list[Arrival]) -> None:
        for each in messages:
            key = each.retransmission.slot, each.retransmission.number
            self.last[key] = each
            self.free.pop(key, None)

    def resend(self) -> None:
        if self.last:
            assert take(self.store, again(self.random.choice(list(self.last.values())))) == [Receipt.DUPLICATE]

    def plain(self) -> None:
        take(self.store, make_arrival(0))

    def forget(self) -> None:
        if self.last:
            key = self.random.choice(list(self.last))
            self.free[key] = self.last.pop(key)
            forget(self.store, self.free[key])

    def purge(self) -> None:
        for stream in self.store.streams.everything():
            self.store.accept(stream.stream, self.random.randint(stream.settled, stream.head))
        with self.store.transaction():
            self.store.purge()

    def save(self) -> None:
        with self.store.transaction():
            self.store.save()

    def fail(self) -> None:
        """A group that does not fit, after it was saved and settled rows were deleted."""
        many = [self._message() for _ in range(self.random.choice((1, 30)))]
        freed = list(self.last.values())[:3]

        def change() -> None:
            slots = resends(self.store)
            for each in many:
                slots.note(each, each.retransmission, self.store.age.s)
            for each in freed:
                slots.forget(each.retransmission.slot, each.retransmission.number)

        roll_back(self.store, change, self.store.purge, self.store.save, self.store.save)

    def restart(self) -> None:
        self.store.connection.close()
        self.store = open_store(self.path)

    def check(self, store: OutboxStore, told: str) -> None:
        assert [key for key, each in self.last.items() if not known(store, each)] == [], f"{told}: a resend is not recognised"
        assert [key for key, each in self.free.items() if known(store, each)] == [], f"{told}: a free id is not free"


@pytest.mark.parametrize("least", [4096, 20], ids=["kept", "cleaned"])
@pytest.mark.parametrize("saved_rows", [1, 100, 1024])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.fault("C2", "D1")
def test_the_last_message_of_each_id_is_recognised_after_a_kill_at_any_commit(
    memory, path, monkeypatch, seed, saved_rows, least
):
    monkeypatch.setattr(module, "LEAST_ENTRIES", least)
    monkeypatch.setattr(streams_module, "SAVED_ROWS", saved_rows)
    clients = Clients(path, seed)
    weights = {"send": 8, "resend": 2, "plain": 2, "forget": 2, "purge": 2, "save": 1, "fail": 2, "restart": 1}
    for _ in range(150):
        (step,) = clients.random.choices(list(weights), list(weights.values()))
        getattr(clients, step)()
        clients.check(clients.store, step)
        copy = open_store(copy_file(path, memory / "copy"))
        clients.check(copy, f"restart after {step}")
        copy.connection.close()
    assert clients.free
    clients.store.connection.close()


def test_an_id_that_a_client_has_freed_is_free_after_its_log_was_cleaned_too(path, monkeypatch):
    monkeypatch.setattr(module, "LEAST_ENTRIES", 10)
    store = open_store(path)
    freed = message(1, number=7)
    take(store, freed)
    forget(store, freed)
    for n in range(200):
        take(store, message(n, number=n % 5 + 10))
        with store.transaction():
            store.save()
    store.connection.close()
    store = open_store(path)
    assert not known(store, freed)
    assert known(store, message(199, number=14))
    store.connection.close()


# --- room


def fill(slots: ResendMemory, messages, *, save_every: int = streams_module.SAVED_ROWS) -> int:
    """Note all messages, saved as often as the streams are. Returns the most bytes that the log had."""
    most = 0
    for n, each in enumerate(messages, 1):
        slots.note(each, each.retransmission, 5)
        if n % save_every == 0:
            slots.save()
            slots.committed()
            most = max(most, log_bytes(slots._connection))
    slots.save()
    slots.committed()
    return max(most, log_bytes(slots._connection))


def share(max_bytes: int) -> int:
    """The room that the log may take: its share, or that of a small number of entries; and the newest entries."""
    return max(int(max_bytes * SHARE), LEAST_ENTRIES * ENTRY.size) + 2 * streams_module.SAVED_ROWS * ENTRY.size


MEGABYTE = 1_000_000


@pytest.mark.parametrize("max_bytes", [MEGABYTE, 64 * MEGABYTE, LARGE])
def test_a_client_that_uses_all_ids_stays_within_the_share_of_the_log(path, max_bytes):
    connection = open_database(path, LARGE)
    slots = ResendMemory(connection, max_bytes)
    most = fill(slots, (message(n, number=n % IDS + 1) for n in range(3 * IDS)))
    assert most <= share(max_bytes)
    assert most <= 2 * IDS * ENTRY.size + share(MEGABYTE), "more than twice the entries that are in use"
    loaded = ResendMemory(connection, max_bytes)
    newest = [message(n, number=n % IDS + 1) for n in range(3 * IDS - 1000, 3 * IDS)]
    assert all(loaded.repeats(each, again(each).retransmission, 5) for each in newest)
    connection.close()


@pytest.mark.parametrize("max_bytes", [MEGABYTE, 64 * MEGABYTE, LARGE])
def test_a_thousand_clients_stay_within_the_share_of_the_log(path, max_bytes):
    connection = open_database(path, LARGE)
    random = Random(1)
    slots = ResendMemory(connection, max_bytes)
    sent = [message(n, client=b"client-%d" % random.randrange(1000), number=random.randrange(1, 200)) for n in range(100_000)]
    assert fill(slots, sent) <= share(max_bytes)
    last = {(each.retransmission.slot, each.retransmission.number): each for each in sent}
    loaded = ResendMemory(connection, max_bytes)
    recognised = [loaded.repeats(each, again(each).retransmission, 5) for each in last.values()]
    assert all(recognised) if max_bytes == LARGE else sum(recognised) > 60
    connection.close()


@pytest.mark.parametrize("saved", [1, 10])
def test_a_log_of_many_small_rows_is_cleaned_as_fast_as_it_grows(path, saved):
    """Each freed id is a row of the log. When large rows follow, the log must not outgrow its share meanwhile."""
    connection = open_database(path, LARGE)
    slots = ResendMemory(connection, MEGABYTE)
    connection.execute("BEGIN")
    fill(slots, (message(n, number=n % 10) for n in range(LEAST_ENTRIES)), save_every=saved)
    most = fill(slots, (message(n, number=n % 10) for n in range(100 * streams_module.SAVED_ROWS)))
    assert most <= share(MEGABYTE)
    connection.close()


def test_an_idle_client_is_recognised_after_half_a_million_messages_of_a_busy_one_and_a_restart(path):
    connection = open_database(path, LARGE)
    connection.execute("BEGIN")
    slots, idle = ResendMemory(connection, LARGE), message(7, client=b"idle")
    slots.note(idle, idle.retransmission, 5)
    fill(slots, (message(n, client=b"busy", number=n % IDS + 1) for n in range(500_000)))
    for memory in (slots, ResendMemory(connection, LARGE)):
        assert memory.repeats(idle, again(idle).retransmission, 5)
    connection.close()


def test_a_device_that_was_silent_for_longer_than_its_window_is_not_recognised(path):
    store = open_store(path)
    sent = message(1)
    take(store, sent)
    window_s = sent.retransmission.window_s
    assert resends(store).repeats(sent, again(sent).retransmission, window_s)
    assert not resends(store).repeats(sent, again(sent).retransmission, window_s + store.age.s + 1)
    store.connection.close()


def test_loading_a_long_log_takes_only_the_memory_of_its_entries(path):
    """A gateway whose clients use all their ids has half a million entries in its log."""
    connection = open_database(path, LARGE)
    for client in range(4):
        entries = [ENTRY.pack(b"client %d" % client, number, b"payload!", 1) for number in range(IDS)]
        for first in range(0, IDS, 1024):
            connection.execute("INSERT INTO resend (entries) VALUES (?)", (b"".join(entries[first : first + 1024]),))
    del entries
    tracemalloc.start()
    try:
        memory = ResendMemory(connection, LARGE)
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert memory._entries == 4 * IDS
    assert peak < 1.5 * held, f"{peak} bytes to load what takes {held}"
    connection.close()
