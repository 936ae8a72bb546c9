"""`fogline-edge backup` and `restore`, without a bridge."""

import asyncio
import json
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path

import msgspec
import pytest

from fogline.commands.command import Deadline
from fogline.errors import Misconfigured
from fogline_edge.adapters.mqtt.protocol.packets import Publish
from fogline_edge.adapters.mqtt.session.inflight import DeliveryPhase, InflightCommand
from fogline_edge.adapters.mqtt.session.session_state import SessionRecord
from fogline_edge.cli import main
from fogline_edge.operate.backup import restore, write_backup
from fogline_edge.outbox.file.copy_file import OLDEST, CopyFile, CopyRecord, change_copy, read_copy
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.settings import load
from fogline_lab.amqp import within
from fogline_lab.credentials.mosquitto_passwords import mosquitto_line
from fogline_lab.events import make_arrival

EVENTS = 300


@pytest.fixture
def config(tmp_path) -> Path:
    """Settings of a gateway with a password file in their folder, and one elsewhere."""
    folder = tmp_path / "pi"
    folder.mkdir()
    (folder / "users").write_text(mosquitto_line("lamp-1", b"secret") + "\n")
    (folder / "users").chmod(0o640)
    (tmp_path / "password").write_text("elsewhere\n")
    path = folder / "edge.toml"
    path.write_text(
        'tenant = "acme"\ngateway = "gw-1"\ndata = "data"\n[uplink]\nbridge = "127.0.0.1:1"\n'
        '[mqtt]\nport = 0\nusers = "users"\n'
        '[[mqtt_clients]]\nname = "home"\nprofile = "plain"\npassword_file = "../password"\n'
        'topics = [{ topic = "{device}/t" }]\n'
    )
    return path


async def put(outbox, *numbers):
    receipts = [asyncio.get_running_loop().create_future() for _ in numbers]
    for number, receipt in zip(numbers, receipts, strict=True):
        outbox.port.put(make_arrival(number), receipt.set_result)
    await within(asyncio.gather(*receipts), "not acknowledged")


def heads(folder: Path) -> int:
    with closing(sqlite3.connect(folder / "outbox.db")) as connection:
        return connection.execute("SELECT count(*) FROM event").fetchone()[0]


async def test_a_backup_of_a_running_gateway_is_of_one_moment_and_the_gateway_goes_on(config, tmp_path):
    outbox = Outbox.open(load(config))
    await put(outbox, *range(EVENTS))
    putting = asyncio.create_task(put(outbox, *range(EVENTS, 10 * EVENTS)))
    made = await asyncio.to_thread(write_backup, config, tmp_path / "gw-1.backup")
    await putting
    await outbox.close()
    assert (tmp_path / "gw-1.backup").stat().st_mode & 0o777 == 0o600
    assert made.files == ["edge.toml", "users"]
    assert made.left_out == [str(tmp_path / "password")]
    done = restore(tmp_path / "gw-1.backup", tmp_path / "new")
    assert EVENTS <= done.waiting <= 10 * EVENTS
    assert heads(tmp_path / "new" / "data") == done.waiting
    assert (tmp_path / "new" / "users").stat().st_mode & 0o777 == 0o640
    again = Outbox.open(load(done.settings))
    (stream,) = await again.streams.pending()
    assert stream.head == done.waiting
    await put(again, 1)
    await again.close()


async def test_a_restored_gateway_has_no_number_and_the_former_one_the_oldest(config, tmp_path):
    await Outbox.open(load(config)).close()
    write_backup(config, tmp_path / "file")
    assert read_copy(config.parent / "data") == CopyRecord(OLDEST)
    done = restore(tmp_path / "file", tmp_path / "new")
    assert read_copy(tmp_path / "new" / "data") == CopyRecord(0, done.made)


async def test_a_command_that_waited_counts_as_tried_by_the_former_gateway(config, tmp_path):
    await Outbox.open(load(config)).close()
    columns = "id, device, name, data, reply, durable, idempotent, correlation, boot, deadline_ms, digest, state, changed_s"
    with closing(sqlite3.connect(config.parent / "data" / "outbox.db", isolation_level=None)) as connection:
        for state in ("QUEUED", "SENDING", "SUCCEEDED"):
            row = (state, "lamp-1", "switch", b"", 1, 1, 1, "string:1", "boot", 0, b"", state, 0)
            connection.execute(f"INSERT INTO command ({columns}) VALUES ({', '.join('?' * len(row))})", row)
    write_backup(config, tmp_path / "file")
    restore(tmp_path / "file", tmp_path / "new")
    with closing(sqlite3.connect(tmp_path / "new" / "data" / "outbox.db")) as connection:
        states = dict(connection.execute("SELECT id, state FROM command"))
        again = {command_id for (command_id,) in connection.execute("SELECT id FROM command WHERE idempotent")}
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    assert states == {"QUEUED": "SENDING", "SENDING": "SENDING", "SUCCEEDED": "SUCCEEDED"}
    assert again == {"SUCCEEDED"}, "its end would be reported twice"
    assert not tables & {"backup", "backup_file"}


@pytest.mark.fault("X9")
async def test_a_command_that_a_session_had_in_flight_is_not_sent_again(config, tmp_path):
    """Its client has perhaps completed the exchange since, and would take a second PUBLISH for a new command."""
    outbox = Outbox.open(load(config))
    publish = Publish(topic="command///req/C1/switch", payload=b"{}", qos=2, packet_id=1)
    begun = {1: InflightCommand("C1", "lamp-1", Deadline("boot", 1), publish, DeliveryPhase.SENT)}
    for client, inflight in (("begun", begun), ("idle", {})):
        record = msgspec.msgpack.encode(SessionRecord(1, b"epoch", 3600, [], inflight))
        done = asyncio.get_running_loop().create_future()
        outbox.port.keep(f"mqtt/session//{client}", record, partial(done.set_result, None))
        await within(done, "not kept")
    await outbox.close()
    write_backup(config, tmp_path / "file")
    restored = Outbox.open(load(restore(tmp_path / "file", tmp_path / "new").settings))
    assert set(restored.port.kept("mqtt/session/")) == {"mqtt/session//idle"}, "the other client's CONNACK says: no session"
    await restored.close()


@pytest.mark.fault("X9")
async def test_the_journal_of_a_restored_gateway_gets_a_new_name(config, tmp_path):
    outbox = Outbox.open(load(config))
    name = outbox.journal
    await outbox.close()
    write_backup(config, tmp_path / "file")
    restored = Outbox.open(load(restore(tmp_path / "file", tmp_path / "new").settings))
    assert restored.journal != name
    await restored.close()


async def test_nothing_is_overwritten(config, tmp_path):
    await Outbox.open(load(config)).close()
    write_backup(config, tmp_path / "file")
    with pytest.raises(Misconfigured, match="not overwritten"):
        write_backup(config, tmp_path / "file")
    with pytest.raises(Misconfigured, match="exists already"):
        restore(tmp_path / "file", config.parent)
    for each in config.parent.glob("*"):
        if each.is_file():
            each.unlink()
    with pytest.raises(Misconfigured, match="there is an outbox"):
        restore(tmp_path / "file", config.parent)
    (config.parent / "data" / "outbox.db").unlink()
    restore(tmp_path / "file", config.parent)
    assert sorted(each.name for each in config.parent.glob("*")) == ["data", "edge.toml", "users"]


async def test_without_an_outbox_there_is_no_backup(config, tmp_path):
    with pytest.raises(Misconfigured, match="no gateway has run"):
        write_backup(config, tmp_path / "file")


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        ("DROP TABLE backup", "is no backup"),
        ("UPDATE backup_file SET name = '../../etc/passwd' WHERE name = 'users'", "forged"),
        ("UPDATE backup_file SET name = '/etc/passwd' WHERE name = 'users'", "forged"),
        ("DELETE FROM backup_file", "no settings"),
        ("PRAGMA user_version = 999", "newer"),
        ("UPDATE meta SET value = 'acme/gw-2' WHERE key = 'gateway'", "belongs to gateway acme/gw-2"),
    ],
)
async def test_a_bad_backup_is_named_and_leaves_no_gateway(config, tmp_path, spoil, says):
    await Outbox.open(load(config)).close()
    write_backup(config, tmp_path / "file")
    with closing(sqlite3.connect(tmp_path / "file", isolation_level=None)) as connection:
        connection.execute(spoil)
    with pytest.raises(Misconfigured, match=says):
        restore(tmp_path / "file", tmp_path / "new")
    assert not (tmp_path / "new" / "edge.toml").exists()
    assert not (tmp_path / "new" / "data" / "outbox.db").exists()


async def test_a_truncated_backup_is_named(config, tmp_path):
    outbox = Outbox.open(load(config))
    await put(outbox, *range(EVENTS))
    await outbox.close()
    write_backup(config, tmp_path / "file")
    data = (tmp_path / "file").read_bytes()
    for part in (b"", data[:100], data[: len(data) // 2]):
        (tmp_path / "file").write_bytes(part)
        with pytest.raises(Misconfigured, match=r"no backup|damaged"):
            restore(tmp_path / "file", tmp_path / "new")


async def test_the_copy_keeps_its_first_number_and_stays_replaced(tmp_path):
    copy = CopyFile(tmp_path)
    assert await copy.number() == 0
    await copy.learn(7, replaced=False)
    await copy.learn(9, replaced=False)
    assert await copy.number() == 7
    await copy.learn(7, replaced=True)
    await copy.learn(7, replaced=False)
    assert copy.replaced.is_set()
    assert CopyFile(tmp_path).replaced.is_set()
    (tmp_path / "copy.json").write_text("{")
    assert await CopyFile(tmp_path).number() == 0


async def test_the_command_line_warns_about_the_keys(config, tmp_path, capsys):
    await Outbox.open(load(config)).close()
    assert main(["backup", "--config", str(config), str(tmp_path / "file")]) == 0
    printed = capsys.readouterr()
    assert "private keys" in printed.err
    assert f"{tmp_path / 'password'} is not in it" in printed.err
    assert main(["restore", str(tmp_path / "file"), "--out", str(tmp_path / "new"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["gateway"] == "gw-1 of acme"
    change_copy(tmp_path / "new" / "data", lambda _: CopyRecord(5, "2026-11-23T19:00:00Z", replaced=True))
    assert main(["status", "--config", str(tmp_path / "new" / "edge.toml")]) == 0
    shown = capsys.readouterr().out
    assert "restored from a backup of 2026-11-23" in shown
    assert "replaced" in shown
