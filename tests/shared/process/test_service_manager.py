"""What the service manager is told, over a real socket."""

import asyncio
import math
import os
import socket

import pytest

from fogline.process import service_manager
from fogline.process.console.command_line import announce
from fogline.process.service_manager import patience_s, tell, tell_progress, tell_status, watched


@pytest.fixture(params=["path", "abstract"])
def manager(request, tmp_path, monkeypatch):
    address = str(tmp_path / "notify") if request.param == "path" else f"@fogline-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(address.replace("@", "\0"))
        listening.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        monkeypatch.delenv("WATCHDOG_PID", raising=False)
        monkeypatch.setattr(service_manager, "_last_told", -math.inf)
        yield listening


def told(manager):
    return manager.recv(1000).decode()


def nothing_is_told(manager):
    manager.setblocking(False)
    with pytest.raises(BlockingIOError):
        manager.recv(1000)
    return True


def test_readiness_of_a_process_is_announced(manager, capsys):
    announce(gateway="gw-1")
    announce(ready="gateway")
    assert told(manager) == "READY=1"
    assert capsys.readouterr().out.count("\n") == 2


def test_without_a_manager_and_with_one_that_is_gone_nothing_happens(monkeypatch, tmp_path):
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    tell("READY=1")
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "gone"))
    tell("READY=1")


@pytest.mark.parametrize(
    ("usec", "pid", "seconds"),
    [("30000000", None, 30.0), ("30000000", "own", 30.0), ("30000000", "1", 0.0), ("", None, 0.0), ("x", None, 0.0)],
)
def test_the_managers_patience_is_for_one_process(monkeypatch, usec, pid, seconds):
    monkeypatch.setenv("WATCHDOG_USEC", usec)
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    if pid is not None:
        monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()) if pid == "own" else pid)
    assert patience_s() == seconds


def test_watchdog_is_pinged_at_most_three_times_in_its_interval(manager, monkeypatch):
    tell_progress()
    assert nothing_is_told(manager)  # nobody asked for it
    monkeypatch.setenv("WATCHDOG_USEC", "3600000000")
    tell_progress()
    tell_progress()
    assert told(manager) == "WATCHDOG=1"
    assert nothing_is_told(manager)


async def test_a_process_that_answers_is_watched_and_one_that_does_not_is_not_kept_alive(manager, monkeypatch):
    monkeypatch.setenv("WATCHDOG_USEC", "30000")
    calls, stuck = 0, asyncio.Event()

    async def answers():
        nonlocal calls
        calls += 1
        if calls > 3:
            stuck.set()
            await asyncio.Future()

    async with watched(answers):
        await asyncio.wait_for(stuck.wait(), 60)
    assert [told(manager) for _ in range(3)] == ["WATCHDOG=1"] * 3
    assert nothing_is_told(manager)


async def test_stuck_part_stops_the_watchdog_pings_and_is_in_status_and_log(manager, monkeypatch, caplog):
    monkeypatch.setenv("WATCHDOG_USEC", "30000")
    checks = iter(["", *["the reader of topic-1"] * 3, ""])
    done = asyncio.Event()

    async def answers():
        try:
            return next(checks)
        except StopIteration:
            done.set()
            return "the end"

    async with watched(answers, lambda: "it waits"):
        await asyncio.wait_for(done.wait(), 60)
    expected = ["WATCHDOG=1", "STATUS=it waits", "STATUS=the reader of topic-1", "WATCHDOG=1", "STATUS=it waits"]
    assert [told(manager) for _ in range(5)] == expected
    assert caplog.text.count("the service manager has to start this process again: the reader of topic-1") == 1


def test_a_status_is_one_line(manager):
    tell_status("shard 1:\nREADY=1")
    assert told(manager) == "STATUS=shard 1: READY=1"


async def test_a_watched_process_tells_each_new_status_once(manager, monkeypatch):
    monkeypatch.setenv("WATCHDOG_USEC", "30000")
    statuses = iter(["", "it waits", "it waits", ""])
    done = asyncio.Event()

    def status():
        try:
            return next(statuses)
        except StopIteration:
            done.set()
            return ""

    async def answers():
        pass

    async with watched(answers, status):
        await asyncio.wait_for(done.wait(), 60)
    manager.setblocking(False)
    found = []
    while not found or found[-1] != "STATUS=":
        found.append(told(manager))
    assert [each for each in found if each != "WATCHDOG=1"] == ["STATUS=it waits", "STATUS="]
