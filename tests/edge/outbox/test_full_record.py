"""`status` says why the gateway does not acknowledge events, and afterwards when that was."""

import asyncio
import json
import socket

import pytest

from edge.outbox.full_outbox import Full, full, heal
from fogline.errors import Misconfigured
from fogline.events.event import Receipt
from fogline_edge import gateway
from fogline_edge.cli import main
from fogline_edge.machine import fixed_file as module
from fogline_edge.operate.doctor import diagnose
from fogline_edge.operate.status import read_status
from fogline_edge.outbox.file.free_space import NoRoom
from fogline_edge.outbox.file.full_record import FILE, FullCause, FullRecord, read_full, state_of
from fogline_edge.outbox.outbox import Outbox
from fogline_lab.amqp import within
from fogline_lab.clock import YEAR_NS, FakeClock
from fogline_lab.disk import Disk, DiskOperation, quota_exceeded
from fogline_lab.events import make_arrival
from fogline_lab.gateway.outbox_use import put, settings

LIMIT_S = 60.0


@pytest.fixture
def config(folder):
    path = folder / "edge.toml"
    path.write_text('tenant = "acme"\ngateway = "gw-1"\ndata = "data"\n[mqtt]\nport = 0\n[uplink]\nbridge = "127.0.0.1:1"\n')
    return path


def shown(config, capsys):
    assert main(["status", "--config", str(config)]) == 0
    return capsys.readouterr().out.splitlines()[1]


async def test_outbox_at_its_bound_reports_it_with_a_remedy(folder, config, capsys, caplog):
    outbox = await full(folder)
    found = read_status(folder / "data")["full"]
    assert (found["cause"], found["lasted_s"]) == ("bound", None)
    assert found["free_bytes"] > 0
    assert 800_000 < found["used_bytes"] <= found["max_bytes"] == 1_000_000
    sentence = found["sentence"]
    assert sentence.startswith(f"events are not acknowledged since {found['since']}, because the outbox has reached outbox.max")
    assert sentence.endswith("see with fogline-edge doctor why the bridge takes no events, or raise outbox.max_bytes")
    assert shown(config, capsys).partition("(")[0] == sentence.partition("(")[0]
    assert outbox.why_full().partition("(")[0] == sentence.partition("(")[0]
    failed = [each for each in diagnose(config) if each.subject == "outbox" and each.grade == "FAIL"]
    assert failed[0].remedy == "See with fogline-edge doctor why the bridge takes no events, or raise outbox.max_bytes"
    assert caplog.text.count("the outbox is full: devices wait: events are not acknowledged since") == 1
    await heal(outbox)
    await outbox.answers()
    found = read_status(folder / "data")["full"]
    assert found["lasted_s"] >= 0
    assert shown(config, capsys).startswith(f"events were not acknowledged from {found['since']} on for ")
    assert outbox.why_full() == ""
    assert caplog.text.count("the outbox has room again, after") == 1
    await outbox.close()
    assert main(["status", "--config", str(config), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["full"]["since"] == found["since"], "it outlasts the run"


async def test_a_full_disk_is_one_period_however_often_it_is_tried(folder, monkeypatch, caplog):
    disk, no_room = Disk(), Full(monkeypatch, DiskOperation.WRITE, quota_exceeded)
    outbox = Outbox.open(settings(folder, statement_s=0.01), disk.connect)
    disk.before, no_room.full = no_room, True
    waiting = asyncio.ensure_future(put(outbox, make_arrival(2)))
    async with asyncio.timeout(LIMIT_S):
        while no_room.refused < 5:
            await outbox.streams.pending()
    found = read_status(folder / "data")["full"]
    assert found["cause"] == "disk"
    assert "the disk, or this user's quota of it, is full (" in found["sentence"]
    assert f"bytes are free in {folder / 'data'}): delete other files there" in found["sentence"]
    no_room.full = False
    assert await within(waiting, "it does not heal") is Receipt.STORED
    await outbox.answers()
    assert caplog.text.count("the outbox is full") == caplog.text.count("the outbox has room again") == 1
    await outbox.close()
    sentence = state_of(read_full(folder / "data"), folder).sentence
    assert sentence.endswith("because the disk, or this user's quota of it, was full")


async def test_a_run_ends_the_period_of_a_run_that_was_killed(folder):
    clock = FakeClock()
    await Outbox.open(settings(folder), clock=clock).close()
    assert read_status(folder / "data")["full"] is None
    FullRecord(folder / "data", 1000, clock).begin(FullCause.BOUND, 999)
    clock.wall_ns += 60_000_000_000
    outbox = Outbox.open(settings(folder), clock=clock)
    assert read_full(folder / "data").lasted_s == pytest.approx(60)
    clock.wall_ns -= YEAR_NS
    assert outbox.why_full() == ""
    await outbox.close()


def test_the_file_has_its_size_before_the_disk_is_full_and_nothing_is_written_beside_it(tmp_path, monkeypatch):
    record = FullRecord(tmp_path, 1000)
    record.opened()
    size = (tmp_path / FILE).stat().st_size
    record.begin(FullCause.DISK, 10**9)
    record.end()
    assert (tmp_path / FILE).stat().st_size == size
    assert [each.name for each in tmp_path.iterdir()] == [FILE]

    def no_room(*_) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.os, "pwrite", no_room)
    assert "the disk" in record.begin(FullCause.DISK), "it is known without the file"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"cause": "moon"}'])
def test_a_file_that_cannot_be_read_counts_as_missing(tmp_path, content):
    (tmp_path / FILE).write_bytes(content)
    assert read_full(tmp_path) is None


async def test_the_service_s_status_says_why_the_gateway_does_not_start(folder, monkeypatch):
    await Outbox.open(settings(folder)).close()
    stop = asyncio.Event()

    def open_outbox(_, export):
        stop.set()
        raise NoRoom("the disk is full")

    monkeypatch.setattr(gateway.Outbox, "open", open_outbox)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(folder / "notify"))
        manager.settimeout(LIMIT_S)
        monkeypatch.setenv("NOTIFY_SOCKET", str(folder / "notify"))
        assert await within(gateway._open_outbox(settings(folder), stop), "it does not stop") is None
        assert manager.recv(1000).startswith(b"EXTEND_TIMEOUT_USEC=")
        told = manager.recv(1000).decode()
    sentence = read_status(folder / "data")["full"]["sentence"]
    assert told.partition("(")[0] == f"STATUS={sentence}".partition("(")[0]


def test_an_outbox_that_a_full_disk_hides_is_explained(tmp_path):
    (tmp_path / "outbox.db").write_text("no database" * 1000)
    FullRecord(tmp_path, 1000).begin(FullCause.DISK)
    with pytest.raises(Misconfigured, match=r"cannot be read: .*; events are not acknowledged since"):
        read_status(tmp_path)
