"""A power cut, a full disk and a restored backup, with a rule of each kind: nothing is lost, and each action is done once."""

import sqlite3
import tomllib
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from edge.outbox.stores import close_windows, open_store, stored_events, take
from fogline.events.event import Arrival, Lane, Receipt
from fogline.events.identity import Retransmission
from fogline.gateway.ledger import total_by_rule
from fogline_edge.downlink.journal import open_entries
from fogline_edge.operate.backup import restore, write_backup
from fogline_edge.outbox.rows.message_rows import unpublished
from fogline_edge.outbox.writer.ingest import keep_value
from fogline_edge.outbox.writer.store import OutboxStore
from fogline_edge.rule_settings import RuleSettings
from fogline_edge.rules.windows import AGGREGATE_CONTENT_TYPE
from fogline_lab.clock import FakeClock
from fogline_lab.disk import Disk, DiskOperation, disk_full
from fogline_lab.events import make_arrival
from fogline_lab.power_cut import PowerCut

RULES = """
[[private]]
name = "home"
drop = ["/name"]
[[identity]]
name = "numbered"
device = "press"
fields = ["/n"]
[[reduce]]
name = "changes"
device = "door"
fields = ["/open"]
on_change = true
[[reduce]]
name = "means"
device = "press"
fields = ["/t"]
window_s = 60
aggregates = ["mean"]
[[react]]
name = "hot"
device = "press"
when = "event.value.t > 26.0"
every = true
burst = 1000
then = [{ command = "switch", device = "fan" }, { alarm = "hot" }, { topic = "rule/hot" }]
"""
GROUPS, EACH, FULL_AT = 9, 4, 5
EVENTS = range(1, GROUPS * EACH + 1)
PRESS = {n for n in EVENTS if n % 2}
HOT = {n for n in PRESS if n % 4 == 1}
CANARY = b"Ada-Lovelace"


def rules() -> RuleSettings:
    return msgspec.convert(tomllib.loads(RULES), RuleSettings)


def arrival(n: int, *, again: bool = False) -> Arrival:
    """Event n: of the press with its number in the payload, or of the door in a message that says that it was sent again."""
    if n in PRESS:
        return make_arrival(device="press", data=b'{"n": %d, "t": %d, "name": "%s"}' % (n, 27 if n in HOT else 20, CANARY))
    value = b'{"open": %s, "name": "%s"}' % (b"true" if n % 8 < 4 else b"false", CANARY)
    return make_arrival(device="door", data=value, retransmission=Retransmission(b"door", again, number=n))


def live(store: OutboxStore, disk: Disk, clock: FakeClock) -> None:
    """Take all events. The disk is full for one group at first. Every second group's messages are published."""
    for group in range(GROUPS):
        numbers = [group * EACH + each for each in range(1, EACH + 1)]
        clock.go_on(25)
        if group == FULL_AT:
            disk.before = refuse_writes
            with pytest.raises(sqlite3.OperationalError, match="no space left"):
                take(store, *map(arrival, numbers))
            disk.before = lambda _kind, _file: None
        take(store, *map(arrival, numbers))
        disk.note(("acknowledged", frozenset(numbers)))
        if group % 2:
            disk.note(("published", frozenset(each.note.event for each in store.messages)))
            with store.transaction():
                for each in store.messages:
                    keep_value(store.connection, each.key, None)
            store.messages.clear()
        close_windows(store)


def refuse_writes(kind: DiskOperation, _: str) -> None:
    if kind is DiskOperation.WRITE:
        raise disk_full()


def judge(store: OutboxStore, clock: FakeClock, acknowledged: set[int], published: set[str]) -> None:
    """Check the file of a gateway that starts again; then all events come once more, as devices send them again."""
    causes = [command.correlation for command, _ in open_entries(store.connection, store.identity)]
    noted = {note.event for note in unpublished(store.connection).values() if note is not None}
    fired = {cause.removeprefix("rule/hot/") for cause in causes}
    assert noted <= fired
    assert fired - noted <= published, "a message is neither published nor in doubt"
    receipts = take(store, *(arrival(n, again=True) for n in sorted(acknowledged)))
    assert set(receipts) <= {Receipt.DUPLICATE}, "an acknowledged event is lost"
    take(store, *(arrival(n, again=True) for n in EVENTS if n not in acknowledged))
    clock.go_on(1000)
    close_windows(store)
    events = stored_events(store)
    assert len({each.id for each in events}) == len(events)
    aggregates = [msgspec.json.decode(each.data) for each in events if each.content_type == AGGREGATE_CONTENT_TYPE]
    assert sum(each["count"] for each in aggregates) == len(PRESS), "each event is in one aggregate"
    counted = total_by_rule(each.counts.rules for each in store.streams.everything())
    stored = Counter(
        each.device for each in events if each.lane is Lane.TELEMETRY and each.content_type != AGGREGATE_CONTENT_TYPE
    )
    assert stored == {"door": len(EVENTS) - len(PRESS) - counted["changes"].get("reduced", 0)}
    commands = [command for command, _ in open_entries(store.connection, store.identity)]
    alarms = [msgspec.json.decode(each.data)["event"] for each in events if each.lane is Lane.ALARM]
    assert len(alarms) == len(HOT)
    assert sorted(each.correlation for each in commands) == sorted(f"rule/hot/{each}" for each in alarms)
    assert counted["hot"] == {"fired": len(HOT)}
    stream = store.streams.of_lane(Lane.TELEMETRY)
    assert stream.counts.landing == stream.counts.stored == stored["door"] + len(aggregates)


def restarted(folder: Path, wall_ns: int) -> tuple[OutboxStore, FakeClock]:
    clock = FakeClock()
    clock.reboot(wall_ns)
    return open_store(folder / "outbox.db", clock=clock, rules=rules()), clock


@pytest.mark.fault("C7")
def test_rules_lose_nothing_and_act_once_after_a_power_cut_at_any_step_and_a_full_disk(folder, memory, thorough):
    disk, clock = Disk(), FakeClock()
    store = open_store(folder / "outbox.db", clock=clock, connect=disk.connect, rules=rules())
    live(store, disk, clock)
    store.connection.close()
    images, told = 0, 0
    acknowledged, published = set[int](), set[str]()
    for image in PowerCut(disk.record, every=12 if thorough else 120).images():
        for step in disk.record[told : image.cut]:
            if step.kind is DiskOperation.NOTE:
                what, of = step.note
                (acknowledged if what == "acknowledged" else published).update(of)
        told = image.cut
        assert not any(CANARY in content for content in image.files.values())
        image.write(memory)
        store, later = restarted(memory, clock.wall_ns)
        judge(store, later, acknowledged, published)
        store.connection.close()
        images += 1
    print(f"{images} disk images of {len(disk.record)} steps: nothing lost, each action once")
    assert images > 10


def test_a_restored_gateway_has_the_windows_actions_and_identities_of_its_backup(tmp_path):
    clock = FakeClock()
    config = tmp_path / "edge.toml"
    tables = RULES.replace("[[", "[[rules.")
    config.write_text(f'tenant = "acme"\ngateway = "gw-1"\ndata = "data"\n[mqtt]\nport = 0\n{tables}')
    (tmp_path / "data").mkdir()
    store = open_store(tmp_path / "data" / "outbox.db", clock=clock, rules=rules())
    with store.transaction():
        store.connection.execute("INSERT OR REPLACE INTO meta VALUES ('gateway', 'acme/gw-1')")
    for group in range(3):
        clock.go_on(25)
        take(store, *(arrival(group * EACH + each) for each in range(1, EACH + 1)))
        close_windows(store)
    write_backup(config, tmp_path / "backup")
    store.connection.close()
    restore(tmp_path / "backup", tmp_path / "new")
    store, later = restarted(tmp_path / "new" / "data", clock.wall_ns)
    judge(store, later, set(range(1, 3 * EACH + 1)), set())
    store.connection.close()
